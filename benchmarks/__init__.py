"""What the allocator costs and what it saves, measured against stock Qwen3-VL in the same process."""
