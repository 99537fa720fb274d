// The tests fail if the folder that is made from a GGUF file has another network or other numbers
// than the file, or if what is not understood is not refused by name.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <numeric>

#include "src/checkpoint/weights_file.h"
#include "src/pretrained/gguf/unpack_gguf.h"
#include "src/pretrained/pretrained_folder.h"
#include "tests/data/temporary_folder.h"
#include "tests/pretrained/gguf_builder.h"

namespace trainyard {
namespace {

using testing::GgufBuilder;
using testing::has;

/// A network of one layer: 4 heads of 4, of which 2 are of keys, and 6 tokens.
class GgufUnpack : public ::testing::Test {
 protected:
  void set_architecture(const std::string& name, uint32_t hidden = 12) {
    file_ = GgufBuilder();
    prefix_ = name + ".";
    file_.set_text("general.architecture", name);
    number("block_count", 1);
    number("context_length", 32);
    number("embedding_length", 8);
    number("attention.head_count", 4);
    if (hidden > 0) number("feed_forward_length", hidden);
  }
  void number(const std::string& key, uint32_t value) { file_.set_number(prefix_ + key, value); }
  void real(const std::string& key, float value) { file_.set_real(prefix_ + key, value); }

  void add_decoder_settings() {
    number("attention.head_count_kv", 2);
    number("attention.key_length", head_dim_);
    number("attention.value_length", head_dim_);
    number("rope.dimension_count", head_dim_);
    real("attention.layer_norm_rms_epsilon", 1e-5F);
    real("rope.freq_base", 500000);
  }
  /// Adds a tensor with the numbers first, first + step, first + 2 * step, ...
  void tensor(const std::string& name, std::vector<uint64_t> dims, float first = 0,
              float step = 1) {
    uint64_t count = 1;
    for (const uint64_t size : dims) count *= size;
    std::vector<float> numbers;
    for (uint64_t i = 0; i < count; ++i) numbers.push_back(first + step * static_cast<float>(i));
    file_.add_f32(name, std::move(dims), numbers);
  }
  void add_decoder_tensors() {
    tensor("token_embd.weight", {8, 6});
    tensor("blk.0.attn_norm.weight", {8}, 1, 0);
    tensor("blk.0.attn_q.weight", {8, 4 * head_dim_});
    tensor("blk.0.attn_k.weight", {8, 2 * head_dim_});
    tensor("blk.0.attn_v.weight", {8, 2 * head_dim_}, 0.1F);
    tensor("blk.0.attn_output.weight", {4 * head_dim_, 8}, 0x1p-20F, 0);
    tensor("blk.0.ffn_norm.weight", {8}, 1, 0x1p-10F);
    tensor("blk.0.ffn_gate.weight", {8, 12});
    tensor("blk.0.ffn_up.weight", {8, 12});
    tensor("blk.0.ffn_down.weight", {12, 8});
    tensor("output_norm.weight", {8}, 1, 0);
  }
  void be_llama() {
    set_architecture("llama");
    add_decoder_settings();
    add_decoder_tensors();
  }

  Result<std::vector<FileTensor>> unpack(GgufParts parts = GgufParts::kAll) {
    folder_ = directory_.path() / ("out" + std::to_string(++count_));
    return unpack_gguf(local_files(), directory_.write("model.gguf", file_.finish()), folder_,
                       parts);
  }
  std::string refusal() {
    const auto done = unpack();
    if (done.ok()) return "accepted";
    EXPECT_TRUE(done.error().reason.starts_with("MODEL_")) << done.error().reason;
    return done.error().message;
  }
  /// Unpacks the file and reads the folder like any other.
  PretrainedFolder read() {
    const auto done = unpack();
    EXPECT_TRUE(done.ok()) << done.error().message;
    auto folder = read_pretrained_folder(folder_);
    EXPECT_TRUE(folder.ok()) << folder.error().message;
    return *std::move(folder);
  }
  std::vector<float> numbers_of(const std::string& name, const std::string& dtype) {
    const WeightsFile weights = WeightsFile::open(folder_ / "model.safetensors").value();
    for (size_t i = 0; i < weights.tensors().size(); ++i) {
      if (weights.tensors()[i].name != name) continue;
      EXPECT_EQ(weights.tensors()[i].dtype, dtype) << name;
      return to_f32(weights.tensors()[i].dtype, weights.bytes(i));
    }
    ADD_FAILURE() << "there is no " << name;
    return {};
  }

  GgufBuilder file_;
  std::string prefix_;
  uint32_t head_dim_ = 4;
  TemporaryFolder directory_;
  std::filesystem::path folder_;
  int count_ = 0;
};

TEST_F(GgufUnpack, SettingsBecomeTheConfig) {
  be_llama();
  const PretrainedFolder folder = read();
  const Attributes& p = folder.model.network.parameters;
  EXPECT_EQ(folder.model.family, "llama");
  EXPECT_EQ(folder.model.network.preset, "decoder");
  EXPECT_EQ(p.get_int("n_layer", 0), 1);
  EXPECT_EQ(p.get_int("n_embd", 0), 8);
  EXPECT_EQ(p.get_int("n_head", 0), 4);
  EXPECT_EQ(p.get_int("n_kv_head", 0), 2);
  EXPECT_EQ(p.get_int("head_dim", 0), 4);
  EXPECT_EQ(p.get_int("hidden", 0), 12);
  EXPECT_EQ(p.get_int("vocab_size", 0), 6);
  EXPECT_EQ(p.get_int("tied_head", 0), 1) << "there is no tensor output.weight";
  EXPECT_EQ(p.get_float("norm_epsilon", 0), 1e-5) << "and not the F32 number next to it";
  EXPECT_EQ(p.get_float("rope_theta", 0), 500000);
  EXPECT_EQ(folder.model.positions_max, 32);
}

TEST_F(GgufUnpack, NumbersKeepTheNarrowestTypeThatHasThem) {
  be_llama();
  (void)read();
  EXPECT_EQ(numbers_of("model.embed_tokens.weight", "BF16")[47], 47.0F);
  EXPECT_EQ(numbers_of("model.layers.0.post_attention_layernorm.weight", "F16")[7],
            1 + 7 * 0x1p-10F);
  EXPECT_EQ(numbers_of("model.layers.0.self_attn.v_proj.weight", "F32")[1], 0.1F + 1.0F);
  EXPECT_EQ(numbers_of("model.layers.0.self_attn.o_proj.weight", "BF16")[3], 0x1p-20F);
}

TEST_F(GgufUnpack, QueriesAndKeysOfLlamaAreReordered) {
  be_llama();
  (void)read();
  // Rows of a head are 0, 2, 1, 3 of the file; row r of the file begins with 8 * r.
  const auto q = numbers_of("model.layers.0.self_attn.q_proj.weight", "BF16");
  const std::vector<float> firsts = {q[0], q[8], q[16], q[24], q[32], q[40]};
  EXPECT_EQ(firsts, (std::vector<float>{0, 16, 8, 24, 32, 48}));
  const auto k = numbers_of("model.layers.0.self_attn.k_proj.weight", "BF16");
  EXPECT_EQ(k[8], 16.0F);
  EXPECT_EQ(numbers_of("model.layers.0.self_attn.v_proj.weight", "F32")[8], 0.1F + 8.0F);
}

TEST_F(GgufUnpack, BiasesOfQueriesAreReorderedToo) {
  be_llama();
  tensor("blk.0.attn_q.bias", {16});
  tensor("blk.0.attn_k.bias", {8});
  tensor("blk.0.attn_v.bias", {8});
  EXPECT_EQ(refusal(), "model.gguf: tensor 'blk.0.attn_output.bias': is missing");
  tensor("blk.0.attn_output.bias", {8});
  const PretrainedFolder folder = read();
  EXPECT_EQ(folder.model.network.parameters.get_int("qkv_bias", 0), 1);
  const auto bias = numbers_of("model.layers.0.self_attn.q_proj.bias", "BF16");
  EXPECT_EQ(bias, (std::vector<float>{0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15}));
}

TEST_F(GgufUnpack, QueriesOfQwenStayInTheirOrder) {
  set_architecture("qwen2");
  add_decoder_settings();
  add_decoder_tensors();
  tensor("blk.0.attn_q.bias", {16});
  tensor("blk.0.attn_k.bias", {8});
  tensor("blk.0.attn_v.bias", {8});
  tensor("output.weight", {8, 6}, 3);
  const PretrainedFolder folder = read();
  EXPECT_EQ(folder.model.family, "qwen2");
  EXPECT_FALSE(folder.model.tied_head);
  EXPECT_EQ(numbers_of("model.layers.0.self_attn.q_proj.weight", "BF16")[8], 8.0F);
  EXPECT_EQ(numbers_of("model.layers.0.self_attn.q_proj.bias", "BF16")[1], 1.0F);
  EXPECT_EQ(numbers_of("lm_head.weight", "BF16")[0], 3.0F);
}

TEST_F(GgufUnpack, OlmoNormalizesAfterItsBranches) {
  set_architecture("olmo2");
  add_decoder_settings();
  add_decoder_tensors();
  std::erase_if(file_.tensors(), [](const GgufBuilder::Tensor& t) {
    return t.name == "blk.0.attn_norm.weight" || t.name == "blk.0.ffn_norm.weight";
  });
  tensor("blk.0.post_attention_norm.weight", {8}, 5, 0);
  tensor("blk.0.post_ffw_norm.weight", {8}, 6, 0);
  tensor("blk.0.attn_q_norm.weight", {16}, 1, 0);
  tensor("blk.0.attn_k_norm.weight", {8}, 1, 0);
  EXPECT_EQ(read().model.family, "olmo2");
  EXPECT_EQ(numbers_of("model.layers.0.post_attention_layernorm.weight", "BF16")[0], 5.0F);
  EXPECT_EQ(numbers_of("model.layers.0.post_feedforward_layernorm.weight", "BF16")[0], 6.0F);
}

TEST_F(GgufUnpack, GraniteHasItsMultipliers) {
  set_architecture("granite");
  add_decoder_settings();
  add_decoder_tensors();
  EXPECT_TRUE(has(refusal(), "model.gguf: granite.embedding_scale: is missing")) << refusal();
  real("embedding_scale", 12);
  real("residual_scale", 0.22F);
  real("attention.scale", 0.0078125F);
  real("logit_scale", 8);
  const PretrainedFolder folder = read();
  EXPECT_EQ(folder.model.network.parameters.get_float("residual_multiplier", 0), 0.22);
  EXPECT_EQ(folder.model.network.parameters.get_float("logits_divisor", 0), 8);
}

TEST_F(GgufUnpack, AWindowMakesMistral) {
  be_llama();
  number("attention.sliding_window", 16);
  const PretrainedFolder folder = read();
  EXPECT_EQ(folder.model.family, "mistral");
  EXPECT_EQ(folder.model.network.parameters.get_int("window", 0), 16);
}

TEST_F(GgufUnpack, Gpt2IsTransposed) {
  set_architecture("gpt2", 32);
  real("attention.layer_norm_epsilon", 1e-5F);
  tensor("token_embd.weight", {8, 6});
  tensor("position_embd.weight", {8, 32});
  for (const char* norm : {"blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"}) {
    tensor(std::string(norm) + ".weight", {8}, 1, 0);
    tensor(std::string(norm) + ".bias", {8}, 0, 0);
  }
  tensor("blk.0.attn_qkv.weight", {8, 24});
  tensor("blk.0.attn_qkv.bias", {24});
  tensor("blk.0.attn_output.weight", {8, 8});
  tensor("blk.0.attn_output.bias", {8});
  tensor("blk.0.ffn_up.weight", {8, 32});
  tensor("blk.0.ffn_up.bias", {32});
  tensor("blk.0.ffn_down.weight", {32, 8});
  tensor("blk.0.ffn_down.bias", {8});
  tensor("output.weight", {8, 6});
  EXPECT_EQ(read().model.family, "gpt2");
  const auto c_attn = numbers_of("transformer.h.0.attn.c_attn.weight", "BF16");
  EXPECT_EQ(c_attn[1], 8.0F) << "the file has [24, 8], transformers [8, 24]";
  EXPECT_EQ(c_attn[24], 1.0F);
  file_.tensors().pop_back();
  tensor("output.weight", {8, 6}, 1);
  EXPECT_TRUE(has(refusal(), "tensor 'output.weight' is not of the network"));
}

/// The factors of Llama 3.2 for heads of 64 and the base 500000.
std::vector<float> llama32_factors() {
  std::vector<float> factors;
  for (int i = 0; i < 32; ++i) {
    const double wave = 2 * std::numbers::pi * std::pow(500000.0, i / 32.0);
    const double share = (8192 / wave - 1) / 3;
    const double factor = wave < 2048 ? 1 : wave > 8192 ? 32 : 1 / ((1 - share) / 32 + share);
    factors.push_back(static_cast<float>(factor));
  }
  return factors;
}

TEST_F(GgufUnpack, ScaledPositionsOfLlama3AreRecognized) {
  head_dim_ = 64;
  be_llama();
  std::vector<float> factors = llama32_factors();
  file_.add_f32("rope_freqs.weight", {32}, factors);
  const PretrainedFolder folder = read();
  const Attributes& p = folder.model.network.parameters;
  EXPECT_EQ(p.get_string("rope_scaling", ""), "llama3");
  EXPECT_EQ(p.get_float("rope_factor", 0), 32);
  EXPECT_EQ(p.get_float("rope_low_freq_factor", 0), 1);
  EXPECT_EQ(p.get_float("rope_high_freq_factor", 0), 4);
  EXPECT_EQ(p.get_int("rope_original_positions", 0), 8192);

  factors[16] += 1;
  file_.tensors().pop_back();
  file_.add_f32("rope_freqs.weight", {32}, factors);
  EXPECT_TRUE(has(refusal(), "llama.rope.scaling: the tensor 'rope_freqs.weight' scales"));
  file_.tensors().pop_back();
  file_.add_f32("rope_freqs.weight", {32}, std::vector<float>(32, 1.0F));
  EXPECT_EQ(read().model.network.parameters.get_string("rope_scaling", "none"), "none");
}

TEST_F(GgufUnpack, OtherScaledPositionsAreSettings) {
  be_llama();
  file_.set_text("llama.rope.scaling.type", "yarn");
  real("rope.scaling.factor", 4);
  EXPECT_TRUE(has(refusal(), "llama.rope.scaling.original_context_length: is missing"));
  number("rope.scaling.original_context_length", 8);
  EXPECT_EQ(read().model.network.parameters.get_string("rope_scaling", ""), "yarn");
  be_llama();
  real("rope.scale_linear", 2);
  EXPECT_EQ(read().model.network.parameters.get_string("rope_scaling", ""), "linear");
}

TEST_F(GgufUnpack, TheDescriptionAloneNamesTheTensorsOfTheWeights) {
  be_llama();
  const auto described = unpack(GgufParts::kDescription);
  ASSERT_TRUE(described.ok()) << described.error().message;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "model.safetensors"));
  const auto written = unpack();
  ASSERT_TRUE(written.ok());
  ASSERT_EQ(described->size(), written->size());
  const WeightsFile weights = WeightsFile::open(folder_ / "model.safetensors").value();
  for (const FileTensor& tensor : weights.tensors()) {
    const auto it = std::ranges::find(*described, tensor.name, &FileTensor::name);
    ASSERT_NE(it, described->end()) << tensor.name;
    EXPECT_EQ(it->dtype, tensor.dtype) << tensor.name;
    EXPECT_EQ(it->shape, tensor.shape) << tensor.name;
  }
}

TEST_F(GgufUnpack, SettingsThatAreNotUnderstoodAreNamed) {
  const auto with = [&](auto change) {
    be_llama();
    change();
    return refusal();
  };
  EXPECT_TRUE(has(with([&] { number("expert_count", 8); }), "llama.expert_count: is 8; it is not"));
  EXPECT_EQ(with([&] { number("expert_count", 0); }), "accepted");
  EXPECT_TRUE(has(with([&] { number("vocab_size", 7); }),
                  "llama.vocab_size: is 7, but the tensor 'token_embd.weight' has 6 rows"));
  EXPECT_TRUE(has(with([&] { file_.set_text("llama.rope.scaling.type", "longrope"); }),
                  "llama.rope.scaling.type: is 'longrope', expected none, linear or yarn"));
  EXPECT_TRUE(has(with([&] { real("rope.scaling.attn_factor", 2); }),
                  "llama.rope.scaling.attn_factor: is not supported, expected 1"));
  EXPECT_TRUE(has(with([&] { file_.set_number("split.count", 3); }),
                  "split.count: the model is in 3 files"));
  EXPECT_TRUE(has(with([&] { file_.set_text("general.type", "adapter"); }),
                  "general.type: is 'adapter', expected model"));
  EXPECT_TRUE(has(with([&] { file_.set_number("general.quantization_version", 1); }),
                  "general.quantization_version: is 1, expected 2"));
  set_architecture("bert");
  EXPECT_TRUE(has(refusal(),
                  "model.gguf: general.architecture: 'bert' is not supported, expected "
                  "llama, qwen2, qwen3"));
  set_architecture("llama");
  add_decoder_tensors();
  EXPECT_TRUE(has(refusal(), "llama.attention.layer_norm_rms_epsilon: is missing")) << refusal();
}

TEST_F(GgufUnpack, OneNumberForEachLayerMustBeTheSame) {
  const auto with_hidden = [&](const std::vector<int32_t>& hidden) {
    set_architecture("llama", 0);
    file_.set_numbers("llama.feed_forward_length", hidden);
    add_decoder_settings();
    add_decoder_tensors();
  };
  with_hidden({12, 12, 12});
  EXPECT_EQ(read().model.network.parameters.get_int("hidden", 0), 12);
  with_hidden({12, 16});
  EXPECT_TRUE(has(refusal(), "llama.feed_forward_length: is [12,16], expected a whole number"));
}

TEST_F(GgufUnpack, TensorsThatDoNotFitAreNamed) {
  be_llama();
  tensor("blk.1.attn_norm.weight", {8});
  EXPECT_EQ(refusal(),
            "model.gguf: tensor 'blk.1.attn_norm.weight' is not of the network that the settings "
            "of llama describe");
  be_llama();
  file_.tensors()[2].dims = {16, 8};
  EXPECT_EQ(refusal(),
            "model.gguf: tensor 'blk.0.attn_q.weight': has the shape [8, 16], expected [16, 8] by "
            "the settings of llama");
  be_llama();
  file_.tensors().erase(file_.tensors().begin());
  EXPECT_EQ(refusal(), "model.gguf: tensor 'token_embd.weight': is missing");
}

TEST_F(GgufUnpack, AFileWithoutATokenizerHasNone) {
  be_llama();
  const auto done = unpack(GgufParts::kTokenizer);
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().message,
            "model.gguf: tokenizer.ggml.model: is missing: the file has no tokenizer");
}

}  // namespace
}  // namespace trainyard
