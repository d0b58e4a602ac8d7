from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from agentfly_core.backends.hf import HFBackend  # noqa: E402
from agentfly_core.backends.loading import load_model, resolve_device  # noqa: E402
from agentfly_core.types import MissingDependency, UnknownName, UsageError  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture
def folder(tiny_model, tmp_path):
    tiny_model().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_a_folder_gives_its_model_in_eval_mode(folder, tiny_model):
    model = load_model(folder, dtype="float32", device="cpu", attention="eager")
    assert not model.training
    assert model.config._attn_implementation == "eager"
    for name, tensor in tiny_model().state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor)


def test_dtype(folder):
    assert load_model(str(folder), dtype="bfloat16", device="cpu").dtype == torch.bfloat16


def test_a_backend_loads_a_folder(folder, make_backend):
    assert make_backend(folder, device="cpu", threads=1).max_model_len == 128


@pytest.mark.parametrize(("name", "message"), [("config.json", "no config.json"), ("model.safetensors", "no weights")])
def test_a_folder_that_lacks_a_file(name, message, folder):
    (folder / name).unlink()
    with pytest.raises(UsageError, match=message):
        load_model(folder)


def test_a_broken_config(folder):
    (folder / "config.json").write_text("{")
    with pytest.raises(UsageError, match="cannot be loaded"):
        load_model(folder)


def test_weights_that_are_no_weights(folder):
    (folder / "model.safetensors").write_bytes(b"not tensors at all")
    with pytest.raises(UsageError, match="cannot be loaded"):
        load_model(folder)


def test_weights_that_lack_a_tensor(folder):
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UsageError, match=r"lack 1 tensors, among them model\.norm\.weight"):
        load_model(folder)


def test_a_model_that_is_no_causal_lm(folder):
    (folder / "config.json").write_text('{"model_type": "t5"}')
    with pytest.raises(UsageError, match="not a causal language model"):
        load_model(folder)


@pytest.mark.parametrize("path", ["/no/such/folder", "./nothing", "~/nothing-here", "a/b/c"])
def test_a_path_that_leads_nowhere(path):
    with pytest.raises(UsageError, match="there is no model folder"):
        load_model(path)


def test_a_hub_id_without_a_network(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UsageError, match="no model folder nobody/nothing, and the hub"):
        load_model("nobody/nothing")


def test_bad_options(folder):
    with pytest.raises(UnknownName, match="float32"):
        load_model(folder, dtype="float23")
    with pytest.raises(UsageError, match="cannot be loaded"):
        load_model(folder, attention="psychic")
    with pytest.raises(UsageError, match="unknown device 'toaster'"):
        load_model(folder, device="toaster")


def test_a_gpu_that_is_not_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == torch.device("cpu")
    with pytest.raises(UsageError, match="no CUDA GPU"):
        resolve_device("cuda:0")


def test_without_transformers(folder, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(MissingDependency, match=r"agentfly-core\[local\]"):
        HFBackend(folder)
