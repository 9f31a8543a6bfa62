"""Pure functions of tensors: per sample in, per sample out; no modules, no state. The caller averages."""
