"""Use your own image-text model: write the seven members of ClipLike, and the whole library works with it."""

import torch
from torch import nn

import tpt_lib as tpt


class MyClip(nn.Module):  # your model; here a GRU for text and two convolutions for images
    image_spec = tpt.ImageSpec((64, 64), mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), resize_mode="squash")
    logit_scale, logit_bias = 20.0, 0.0

    def __init__(self):
        super().__init__()
        self.image = nn.Sequential(nn.Conv2d(3, 32, 8, 8), nn.ReLU(), nn.Conv2d(32, 64, 8), nn.Flatten())
        self.words, self.text = nn.Embedding(256, 48), nn.GRU(48, 64, batch_first=True)

    def tokenize(self, texts):  # bytes, then 1 as the end and 0 as padding
        rows = [[*text.lower().encode(), 1][:64] for text in texts]
        return torch.tensor([row + [0] * (64 - len(row)) for row in rows])

    def embed_tokens(self, ids):
        return self.words(ids)

    def encode_image(self, pixels):
        return self.image(pixels)

    def encode_embeddings(self, embeddings, ids):  # the state at the end of the text
        return self.text(embeddings)[0][torch.arange(len(ids)), (ids == 1).int().argmax(dim=1)]


torch.manual_seed(0)
model = tpt.wrap(MyClip().eval().requires_grad_(False))
prompts = tpt.class_prompts(model, ["cat", "dog", "red panda"], template="a photo of a {} .")
image = tpt.encode_views(model, tpt.views.preprocess(torch.rand(3, 80, 100), model.image_spec)[None])
logits = tpt.class_logits(model, image, tpt.encode_prompts(model, prompts))
print(dict(zip(prompts.names, logits.softmax(dim=-1)[0].tolist(), strict=True)))
