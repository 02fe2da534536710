"""Serve the browser app as a Hugging Face Space."""

from tpt_lib.cli import main

MODELS = ["tiny"]  # or also "ViT-B-32:openai": its weights are downloaded when the Space starts

if __name__ == "__main__":
    main(["app", "--models", *MODELS, "--host", "0.0.0.0", "--port", "7860"])
