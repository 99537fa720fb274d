#include "tests/engine/random_model.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "src/base/philox.h"
#include "src/base/text.h"
#include "src/data/text/tokenizer.h"
#include "src/models/model_spec.h"

namespace trainyard::testing {

ModelInfo letters_model(ModelSpec spec, int64_t context) {
  ModelInfo info;
  info.model = std::move(spec);
  info.schema.kind = DatasetSchema::Kind::kText;
  info.schema.text.tokenizer = TokenizerKind::kChar;
  for (char c = 'a'; c <= 'p'; ++c) info.schema.text.pieces.emplace_back(1, c);
  info.schema.target.kind = TargetSchema::Kind::kNextToken;
  info.schema.target.name = "next token";
  info.schema.train_rows = 4 * context;
  info.preprocessing.context_length = context;
  return info;
}

namespace {

/// Writes the folder of a model whose element i of tensor t is value(t, i).
void write_weights_of(const std::filesystem::path& folder, const ModelInfo& info,
                      const std::function<double(const TensorInfo&, int64_t)>& value) {
  const Result<Model> model =
      build_model(info.model, info.interface(), {.batch_size = 1, .training = false});
  ASSERT_TRUE(model.ok()) << model.error().message;
  std::vector<std::vector<float>> values;
  for (const TensorInfo& t : model->graph.tensors()) {
    if (t.role != Role::kParameter) continue;
    std::vector<float>& numbers = values.emplace_back();
    for (int64_t i = 0; i < t.type.shape.elements(); ++i) {
      numbers.push_back(static_cast<float>(value(t, i)));
    }
  }
  std::vector<TensorView> views;
  for (const TensorInfo& t : model->graph.tensors()) {
    if (t.role != Role::kParameter) continue;
    views.push_back({t.name, t.type, std::as_bytes(std::span(values[views.size()]))});
  }
  const Status written = write_model(local_files(), folder, info, views);
  ASSERT_TRUE(written.ok()) << written.error().message;
}

constexpr const char* kChatMl =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' "
    "}}{% endif %}";
constexpr int32_t kBytes = 256, kEndToken = kBytes + 2;
constexpr int64_t kChatTokens = kBytes + 4;

/// Returns the files of a tokenizer with a token for each byte, and ChatML's special tokens.
TokenizerFiles byte_tokenizer() {
  nlohmann::json vocabulary;
  char32_t next = 256;
  for (int byte = 0; byte < kBytes; ++byte) {
    const bool printable = (byte > 32 && byte < 127) || (byte > 160 && byte < 173) || byte > 173;
    std::string letter;
    append_utf8(letter, printable ? static_cast<char32_t>(byte) : next++);
    vocabulary[letter] = byte;
  }
  nlohmann::json added;
  for (const char* text : {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"}) {
    const auto id = static_cast<int64_t>(vocabulary.size());
    vocabulary[text] = id;
    added.push_back({{"id", id},
                     {"content", text},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const nlohmann::json byte_level = {{"type", "ByteLevel"},
                                     {"add_prefix_space", false},
                                     {"trim_offsets", true},
                                     {"use_regex", true}};
  const nlohmann::json tokenizer = {{"version", "1.0"},
                                    {"truncation", nullptr},
                                    {"padding", nullptr},
                                    {"added_tokens", added},
                                    {"normalizer", nullptr},
                                    {"pre_tokenizer", byte_level},
                                    {"post_processor", nullptr},
                                    {"decoder", byte_level},
                                    {"model",
                                     {{"type", "BPE"},
                                      {"dropout", nullptr},
                                      {"unk_token", nullptr},
                                      {"continuing_subword_prefix", nullptr},
                                      {"end_of_word_suffix", nullptr},
                                      {"fuse_unk", false},
                                      {"byte_fallback", false},
                                      {"vocab", vocabulary},
                                      {"merges", nlohmann::json::array()}}}};
  const nlohmann::json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                 {"eos_token", "<|im_end|>"},
                                 {"pad_token", "<|pad|>"},
                                 {"chat_template", kChatMl}};
  return {{"tokenizer.json", tokenizer.dump()}, {"tokenizer_config.json", config.dump()}};
}

}  // namespace

void write_random_model(const std::filesystem::path& folder, const ModelInfo& info) {
  write_weights_of(folder, info, [](const TensorInfo& t, int64_t i) {
    const double u = math::uniform01<double>(
        math::philox_u32(7, stream_of(t.name), 0, static_cast<uint64_t>(i)));
    const bool is_scale = t.type.shape.rank() == 1 && t.name.ends_with("weight");
    return is_scale ? 0.5 + u : 0.8 * (2 * u - 1);
  });
}

// The layer adds nothing to a token's own vector, and the head names the successor of that vector.
void write_chat_model(const std::filesystem::path& folder, const std::string& answer,
                      int64_t context) {
  ModelInfo info = letters_model({}, context);
  const Status read = set_tokenizer_files(byte_tokenizer(), info.schema.text);
  ASSERT_TRUE(read.ok()) << read.error().message;
  info.schema.text.pieces.clear();
  info.model.preset = "decoder";
  info.model.parameters = {{"n_layer", int64_t{1}},
                           {"n_head", int64_t{2}},
                           {"n_embd", kChatTokens},
                           {"hidden", int64_t{8}}};
  std::map<int64_t, int64_t> successor;
  int64_t last = '\n';
  for (const char c : answer) {
    successor[last] = c;
    last = c;
  }
  write_weights_of(folder, info, [&](const TensorInfo& t, int64_t i) {
    if (t.type.shape.rank() == 1) return 1.0;
    const int64_t row = i / t.type.shape[1], column = i % t.type.shape[1];
    if (t.name == "embed.weight") return row == column ? 1.0 : 0.0;
    if (t.name != "head.weight") return 0.0;
    const auto next = successor.find(column);
    return row == (next == successor.end() ? kEndToken : next->second) ? 1.0 : 0.0;
  });
}

ModelSpec small_gpt2() {
  ModelSpec spec;
  spec.preset = "gpt2";
  spec.parameters = {{"n_layer", int64_t{2}}, {"n_head", int64_t{2}}, {"n_embd", int64_t{16}}};
  return spec;
}

ModelSpec small_decoder() {
  ModelSpec spec;
  spec.preset = "decoder";
  spec.parameters = {{"n_layer", int64_t{2}},   {"n_head", int64_t{4}},
                     {"n_kv_head", int64_t{2}}, {"n_embd", int64_t{16}},
                     {"hidden", int64_t{24}},   {"qk_norm", std::string("head")},
                     {"window", int64_t{40}},   {"window_layers", std::vector<int64_t>{1}}};
  return spec;
}

}  // namespace trainyard::testing
