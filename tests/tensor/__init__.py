"""Tests of the tensor handle and its functions."""
