"""Measurements that need other libraries or much time: run from the checkout, never installed."""
