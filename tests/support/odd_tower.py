"""A tower whose structure and forward disagree."""

import open_clip


class Odd(open_clip.CLIP):
    """Its structure promises a plain CLIP, its forward does not."""

    def encode_text(self, text, **_):
        x = self.token_embedding(text) + self.positional_embedding
        x = self.ln_final(self.transformer(x, attn_mask=self.attn_mask) + 0.3 * x.roll(1, dims=-1))
        return x[range(len(x)), text.argmax(dim=-1)] @ self.text_projection
