"""Metal Shading Language, for Apple GPUs."""
