"""The models of bench_models.h in PyTorch, for the comparisons on a CPU (peer_torch.py) and on a GPU (compare_gpu.py)."""

import pathlib
import sys

# Models and their usual batch sizes; the names are those of bench_models.h.
MODELS = {"mlp": 128, "mlp_small": 128, "lenet5": 64, "vgg11": 32, "resnet18": 32, "resnet50": 16, "vit_tiny": 32,
          "gpt2_mini": 4, "gpt2_small": 2, "transformer_classifier": 32, "text_cnn": 32, "lstm_classifier": 32,
          "embedding_bag_classifier": 64, "autoencoder": 64}
NAMES = {"mlp": "MLP 784-512-512-10", "mlp_small": "MLP 784-256-128-10", "lenet5": "LeNet-5", "vgg11": "VGG-11 at 32 px",
         "resnet18": "ResNet-18 at 32 px", "resnet50": "ResNet-50 at 32 px", "vit_tiny": "ViT-Tiny at 32 px",
         "gpt2_mini": "GPT of 10.7 M, context 256", "gpt2_small": "GPT-2 of 124 M, context 64",
         "autoencoder": "convolutional autoencoder at 32 px"}
WORDS, ROW_LENGTH = 20000, 128
TOKENS = {"gpt2_mini": (65, 256), "gpt2_small": (50257, 64), "gpt2_small:1024": (50257, 1024)}


def make_model(name):
    """Returns PyTorch's model for a name of bench_models.h, and the shape of a sample; token models
    have a vocabulary."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "golden"))
    import torch
    from image_models import VGG, make_image_model
    from reference_models import make_conv_autoencoder, make_lenet5, make_mlp
    from reference_text import Bag, Classifier, TextCnn
    from reference_transformers import GPT2, GPT_SIZES, VIT_SIZES, WEIGHT_STD, TransformerClassifier, ViT

    if name == "lenet5":
        return make_lenet5(), (1, 28, 28)
    if name == "autoencoder":
        return make_conv_autoencoder((3, 32, 32), (16, 32), 32), (3, 32, 32)
    if name.startswith("mlp"):
        return make_mlp((512, 512) if name == "mlp" else (256, 128)), (784,)
    if name.startswith("gpt2"):
        depth, heads, width = GPT_SIZES[name.partition(":")[0].split("_")[1]]
        model = GPT2(*TOKENS[name], depth=depth, heads=heads, width=width)
        for parameter in model.parameters():
            if parameter.dim() == 2:  # the tied embedding's default would be far too large
                torch.nn.init.normal_(parameter, std=WEIGHT_STD)
        return model, (TOKENS[name][1],)
    text = {"transformer_classifier": lambda: TransformerClassifier(WORDS, ROW_LENGTH, 10),
            "text_cnn": lambda: TextCnn(WORDS, 128, 100, [3, 4, 5], 10),
            "lstm_classifier": lambda: Classifier(torch.nn.LSTM, WORDS, 128, 128, 1, False, False, 10),
            "embedding_bag_classifier": lambda: Bag(WORDS, "mean", 64, 10)}
    if name in text:
        return text[name](), (ROW_LENGTH,)
    preset, _, side = name.partition(":")
    side = int(side or 32)
    if preset in VIT_SIZES:
        return ViT((3, side, side), 10, *VIT_SIZES[preset], patch_size=4 if side < 64 else 16), (3, side, side)
    options = {"dropout": 0.0} if preset in VGG else {}
    return make_image_model(preset, side, 10, **options), (3, side, side)


def make_loss(name):
    """Returns the loss as a function of the model's output, the batch and its classes; an
    autoencoder's target is the batch."""
    import torch

    if name == "autoencoder":
        return lambda output, x, y: torch.nn.functional.mse_loss(output, x)
    return lambda output, x, y: torch.nn.functional.cross_entropy(output, y)
