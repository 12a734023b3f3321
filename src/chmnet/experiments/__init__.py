"""Every table and figure of the paper: one file each."""

MODULES = {
    "main": "main_table",
    "cost": "cost",
    "kernels": "sharing",
    "modules": "modules",
    "tuned": "tuned",
    "channels": "channels",
    "clutter": "clutter",
    "scales": "scales",
    "rotation": "rotation",
    "learned-kernels": "learned_kernels",
    "multiple": "multiple",
    "qualitative": "qualitative",
}
"""The file of each experiment, in the order of the paper."""
