"""Speed and memory: ratios measured in one run against a named baseline, as JSON."""
