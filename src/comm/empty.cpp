// Keeps the layer's library buildable while it has no sources.
