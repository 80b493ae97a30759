"""Transformer Lab: build the Transformer of "Attention Is All You Need" part by part."""
