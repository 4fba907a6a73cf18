"""Tests of derivatives, against finite differences."""
