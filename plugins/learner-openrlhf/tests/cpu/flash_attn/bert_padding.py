"""The names that OpenRLHF imports."""

from einops import rearrange

__all__ = ["index_first_axis", "pad_input", "rearrange", "unpad_input"]


def _absent(*arguments, **options):
    raise NotImplementedError("packing samples needs flash-attn and a GPU")


index_first_axis = pad_input = unpad_input = _absent
