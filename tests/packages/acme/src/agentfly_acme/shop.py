from agentfly_core import reward, tool

PRICES = {"pen": 3, "book": 12, "cup": 7, "lamp": 25, "bag": 40}


@tool
def price(item: str) -> int:
    """Look up what an item costs.

    Args:
        item: its name in the singular.
    """
    return PRICES[item]


@reward
def right_price(final_response: str, item: str) -> float:
    """1 if the response ends with the item's price."""
    return float(final_response.rstrip(" .").endswith(f" {PRICES[item]}"))


def questions(split, seed=0):
    """One row an item: few enough to learn from twenty demonstrations."""
    for item in PRICES:
        yield {"id": f"{split}-{item}", "prompt": f"What does a {item} cost?", "item": item}


def demonstrations(split, seed=0):
    """Twenty conversations, four of each item."""
    for _ in range(4):
        for item, cost in PRICES.items():
            call = {"type": "function", "function": {"name": "price", "arguments": {"item": item}}}
            yield {
                "messages": [
                    {"role": "user", "content": f"What does a {item} cost?"},
                    {"role": "assistant", "content": "", "tool_calls": [call]},
                    {"role": "tool", "content": str(cost)},
                    {"role": "assistant", "content": f"It costs {cost}."},
                ]
            }
