// The names of torchvision's, timm's and transformers' image models.
#include "src/models/naming/naming.h"

namespace trainyard {

namespace {

constexpr std::string_view kResNets = "resnet18, resnet34, resnet50, resnet101 and resnet152";
constexpr std::string_view kVggs = "vgg11, vgg13, vgg16 and vgg19";
constexpr std::string_view kVits = "vit_tiny, vit_small and vit_base";
constexpr std::string_view kImageNet = "imagenet", kMinusOneToOne = "minus_one_to_one";
// nn.DataParallel puts "module." before all names, torch.compile "_orig_mod.".
constexpr std::string_view kWrapped = "module.", kCompiled = "_orig_mod.";

std::vector<NamingScheme> resnets() {
  return {{.title = "torchvision's or timm's ResNet",
           .presets = kResNets,
           .marks = {"layer{i}.{j}.conv{k}.weight"},
           .prefixes = {kWrapped, kCompiled},
           .joins_differently = true,
           .normalize = kImageNet},
          {.title = "transformers' ResNet",
           .presets = kResNets,
           .marks = {"encoder.stages.{i}.layers.{j}.layer.{k}.convolution.weight"},
           .prefixes = {"resnet."},
           .rows = {{"conv1.weight", {"embedder.embedder.convolution.weight"}},
                    {"bn1.{p}", {"embedder.embedder.normalization.{p}"}},
                    {"layer{i}/{j}/conv{k}.weight",
                     {"encoder.stages.{i-1}.layers.{j}.layer.{k-1}.convolution.weight"}},
                    {"layer{i}/{j}/bn{k}.{p}",
                     {"encoder.stages.{i-1}.layers.{j}.layer.{k-1}.normalization.{p}"}},
                    {"layer{i}/{j}/downsample/0.weight",
                     {"encoder.stages.{i-1}.layers.{j}.shortcut.convolution.weight"}},
                    {"layer{i}/{j}/downsample/1.{p}",
                     {"encoder.stages.{i-1}.layers.{j}.shortcut.normalization.{p}"}},
                    {"fc.{p}", {"classifier.1.{p}"}}},
           .normalize = kImageNet}};
}

std::vector<NamingScheme> vggs() {
  return {{.title = "timm's VGG",
           .presets = kVggs,
           .marks = {"pre_logits.fc1.weight"},
           .prefixes = {kWrapped, kCompiled},
           .rows = {{"features/{i}.{p}", {"features.{i}.{p}"}},
                    {"classifier/0.weight", {"pre_logits.fc1.weight"}, Arrangement::kReshaped},
                    {"classifier/0.bias", {"pre_logits.fc1.bias"}},
                    {"classifier/3.weight", {"pre_logits.fc2.weight"}, Arrangement::kReshaped},
                    {"classifier/3.bias", {"pre_logits.fc2.bias"}},
                    {"classifier/6.{p}", {"head.fc.{p}"}}},
           .normalize = kImageNet},
          {.title = "torchvision's VGG",
           .presets = kVggs,
           .marks = {"classifier.6.weight"},
           .prefixes = {kWrapped, kCompiled},
           .joins_differently = true,
           .normalize = kImageNet}};
}

NamingScheme torchvision_vit() {
  return {.title = "torchvision's ViT",
          .presets = kVits,
          .marks = {"encoder.layers.encoder_layer_{i}.self_attention.in_proj_weight"},
          .prefixes = {kWrapped, kCompiled},
          .rows = {{"pos_embed.class_token", {"class_token"}, Arrangement::kReshaped},
                   {"pos_embed.weight", {"encoder.pos_embedding"}, Arrangement::kReshaped},
                   {"patch_embed.{p}", {"conv_proj.{p}"}},
                   {"h{i}_ln_1.{p}", {"encoder.layers.encoder_layer_{i}.ln_1.{p}"}},
                   {"h{i}_attn_qkv.{p}",
                    {"encoder.layers.encoder_layer_{i}.self_attention.in_proj_{p}"}},
                   {"h{i}_attn_proj.{p}",
                    {"encoder.layers.encoder_layer_{i}.self_attention.out_proj.{p}"}},
                   {"h{i}_ln_2.{p}", {"encoder.layers.encoder_layer_{i}.ln_2.{p}"}},
                   {"h{i}_mlp_fc.{p}", {"encoder.layers.encoder_layer_{i}.mlp.0.{p}"}},
                   {"h{i}_mlp_proj.{p}", {"encoder.layers.encoder_layer_{i}.mlp.3.{p}"}},
                   // before torchvision 0.14
                   {"h{i}_mlp_fc.{p}", {"encoder.layers.encoder_layer_{i}.mlp.linear_1.{p}"}},
                   {"h{i}_mlp_proj.{p}", {"encoder.layers.encoder_layer_{i}.mlp.linear_2.{p}"}},
                   {"norm.{p}", {"encoder.ln.{p}"}},
                   {"head.{p}", {"heads.head.{p}"}}},
          .normalize = kImageNet};
}

NamingScheme timm_vit() {
  return {.title = "timm's ViT",
          .presets = kVits,
          .marks = {"blocks.{i}.attn.qkv.weight"},
          .prefixes = {kWrapped, kCompiled},
          .rows = {{"pos_embed.class_token", {"cls_token"}, Arrangement::kReshaped},
                   {"pos_embed.weight", {"pos_embed"}, Arrangement::kReshaped},
                   {"patch_embed.{p}", {"patch_embed.proj.{p}"}},
                   {"h{i}_ln_1.{p}", {"blocks.{i}.norm1.{p}"}},
                   {"h{i}_attn_qkv.{p}", {"blocks.{i}.attn.qkv.{p}"}},
                   {"h{i}_attn_proj.{p}", {"blocks.{i}.attn.proj.{p}"}},
                   {"h{i}_ln_2.{p}", {"blocks.{i}.norm2.{p}"}},
                   {"h{i}_mlp_fc.{p}", {"blocks.{i}.mlp.fc1.{p}"}},
                   {"h{i}_mlp_proj.{p}", {"blocks.{i}.mlp.fc2.{p}"}},
                   {"norm.{p}", {"norm.{p}"}},
                   {"norm.{p}", {"fc_norm.{p}"}},  // pooling by the mean
                   {"head.{p}", {"head.{p}"}}},
          .normalize = kMinusOneToOne};
}

// Both schemes have the prefix "vit." for all but the classifier.
NamingScheme transformers_vit() {
  return {.title = "transformers' ViT",
          .presets = kVits,
          .marks = {"encoder.layer.{i}.attention.attention.query.weight"},
          .prefixes = {"vit."},
          .rows = {{"pos_embed.class_token", {"embeddings.cls_token"}, Arrangement::kReshaped},
                   {"pos_embed.weight", {"embeddings.position_embeddings"}, Arrangement::kReshaped},
                   {"patch_embed.{p}", {"embeddings.patch_embeddings.projection.{p}"}},
                   {"h{i}_ln_1.{p}", {"encoder.layer.{i}.layernorm_before.{p}"}},
                   {"h{i}_attn_qkv.{p}",
                    {"encoder.layer.{i}.attention.attention.query.{p}",
                     "encoder.layer.{i}.attention.attention.key.{p}",
                     "encoder.layer.{i}.attention.attention.value.{p}"},
                    Arrangement::kStacked},
                   {"h{i}_attn_proj.{p}", {"encoder.layer.{i}.attention.output.dense.{p}"}},
                   {"h{i}_ln_2.{p}", {"encoder.layer.{i}.layernorm_after.{p}"}},
                   {"h{i}_mlp_fc.{p}", {"encoder.layer.{i}.intermediate.dense.{p}"}},
                   {"h{i}_mlp_proj.{p}", {"encoder.layer.{i}.output.dense.{p}"}},
                   {"norm.{p}", {"layernorm.{p}"}},
                   {"head.{p}", {"classifier.{p}"}}},
          .unneeded = {{"*pooler.dense.*", "a pooler, which the preset does not have"},
                       {"*embeddings.mask_token", "used only in pretraining"}},
          .normalize = kMinusOneToOne};
}

NamingScheme transformers_5_vit() {
  return {.title = "transformers' ViT",
          .presets = kVits,
          .marks = {"layers.{i}.attention.q_proj.weight"},
          .prefixes = {"vit."},
          .rows = {{"pos_embed.class_token", {"embeddings.cls_token"}, Arrangement::kReshaped},
                   {"pos_embed.weight", {"embeddings.position_embeddings"}, Arrangement::kReshaped},
                   {"patch_embed.{p}", {"embeddings.patch_embeddings.projection.{p}"}},
                   {"h{i}_ln_1.{p}", {"layers.{i}.layernorm_before.{p}"}},
                   {"h{i}_attn_qkv.{p}",
                    {"layers.{i}.attention.q_proj.{p}", "layers.{i}.attention.k_proj.{p}",
                     "layers.{i}.attention.v_proj.{p}"},
                    Arrangement::kStacked},
                   {"h{i}_attn_proj.{p}", {"layers.{i}.attention.o_proj.{p}"}},
                   {"h{i}_ln_2.{p}", {"layers.{i}.layernorm_after.{p}"}},
                   {"h{i}_mlp_fc.{p}", {"layers.{i}.mlp.fc1.{p}"}},
                   {"h{i}_mlp_proj.{p}", {"layers.{i}.mlp.fc2.{p}"}},
                   {"norm.{p}", {"layernorm.{p}"}},
                   {"head.{p}", {"classifier.{p}"}}},
          .unneeded = {{"*pooler.dense.*", "a pooler, which the preset does not have"},
                       {"*embeddings.mask_token", "used only in pretraining"}},
          .normalize = kMinusOneToOne};
}

std::vector<NamingScheme> images_without_preset() {
  return {{.title = "ConvNeXt",
           .presets = "",
           .marks = {"features.{i}.{j}.layer_scale", "stages.{i}.blocks.{j}.conv_dw.weight",
                     "encoder.stages.{i}.layers.{j}.dwconv.weight"},
           .prefixes = {"convnext.", "convnextv2.", kWrapped}},
          {.title = "EfficientNet or MobileNetV3",
           .presets = "",
           .marks = {"features.{i}.{j}.block.{k}.fc1.weight",
                     "blocks.{i}.{j}.se.conv_reduce.weight", "features.{i}.block.{j}.fc1.weight",
                     "encoder.blocks.{i}.depthwise_conv.depthwise_conv.weight"},
           .prefixes = {"efficientnet.", kWrapped}},
          {.title = "MobileNet",
           .presets = "",
           .marks = {"features.{i}.conv.{j}.0.weight", "blocks.{i}.{j}.conv_pwl.weight",
                     "layer.{i}.conv_3x3.convolution.weight", "layer.{i}.convolution.weight"},
           .prefixes = {"mobilenet_v1.", "mobilenet_v2.", kWrapped}}};
}

void add_to(std::vector<NamingScheme>& all, std::vector<NamingScheme> more) {
  for (NamingScheme& scheme : more) all.push_back(std::move(scheme));
}

}  // namespace

std::vector<NamingScheme> image_schemes() {
  std::vector<NamingScheme> all = resnets();
  add_to(all, vggs());
  add_to(all, {torchvision_vit(), timm_vit(), transformers_vit(), transformers_5_vit()});
  add_to(all, images_without_preset());
  return all;
}

}  // namespace trainyard
