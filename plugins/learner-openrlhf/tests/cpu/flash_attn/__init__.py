"""Stands in for flash-attn, which OpenRLHF imports whether or not it is used, and which needs a GPU."""
