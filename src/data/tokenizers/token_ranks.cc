#include "src/data/tokenizers/token_ranks.h"

#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "src/base/base64.h"
#include "src/base/json_fields.h"
#include "src/base/text.h"
#include "src/data/tokenizers/bpe_model.h"
#include "src/data/tokenizers/byte_letters.h"
#include "src/data/tokenizers/file_fields.h"
#include "src/data/tokenizers/pre_tokenizers.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

// The special tokens of files that do not list them; those after these are "<SPECIAL_20>" and so
// on.
constexpr std::array<std::string_view, 20> kOldSpecials = {"<unk>",
                                                           "<s>",
                                                           "</s>",
                                                           "[INST]",
                                                           "[/INST]",
                                                           "[AVAILABLE_TOOLS]",
                                                           "[/AVAILABLE_TOOLS]",
                                                           "[TOOL_RESULTS]",
                                                           "[/TOOL_RESULTS]",
                                                           "[TOOL_CALLS]",
                                                           "[IMG]",
                                                           "<pad>",
                                                           "[IMG_BREAK]",
                                                           "[IMG_END]",
                                                           "[PREFIX]",
                                                           "[MIDDLE]",
                                                           "[SUFFIX]",
                                                           "[SYSTEM_PROMPT]",
                                                           "[/SYSTEM_PROMPT]",
                                                           "[TOOL_CONTENT]"};

struct TekkenConfig {
  std::string pattern;
  int64_t tokens = 0;    // all, with special ones
  int64_t specials = 0;  // they have the first ids
};

Result<TekkenConfig> read_tekken_config(const Json& json, const std::string& path) {
  FileFields fields(json, path);
  TekkenConfig config;
  config.pattern = fields.text("pattern");
  config.tokens = fields.integer("default_vocab_size", 0, 1, TokenNames::kTokensMax);
  config.specials = fields.integer("default_num_special_tokens", 0, 0, TokenNames::kTokensMax);
  fields.ignore_rest();
  if (Status s = fields.finish(); !s.ok()) return std::move(s).error();
  if (config.specials >= config.tokens) {
    return tokenizer_error(path + ".default_vocab_size", "is not more than the special tokens");
  }
  return config;
}

Result<std::vector<std::optional<std::string>>> read_ranks(const Json& list,
                                                           const TekkenConfig& config,
                                                           const std::string& path) {
  if (!list.is_array()) return tokenizer_error(path, "expected a list");
  std::vector<std::optional<std::string>> bytes(static_cast<size_t>(config.tokens));
  size_t i = 0;
  for (const Json& entry : list) {
    FileFields fields(entry, path + "[" + std::to_string(i++) + "]");
    const int64_t rank = fields.integer("rank", 0, 0, int64_t{1} << 40);
    std::optional<std::string> token = base64_decode(fields.text("token_bytes"));
    fields.ignore_rest();
    if (!token || token->empty()) fields.refuse("token_bytes", "expected base64 of some bytes");
    if (Status s = fields.finish(); !s.ok()) return std::move(s).error();
    const int64_t id = rank + config.specials;
    if (id < config.tokens) bytes[static_cast<size_t>(id)] = *std::move(token);
  }
  return bytes;
}

Status add_specials(const Json* list, const TekkenConfig& config, const std::string& path,
                    TokenPipeline& out) {
  std::vector<std::string> names;
  if (list != nullptr && list->is_array()) {
    for (const Json& entry : *list) {
      FileFields fields(entry, path + "[" + std::to_string(names.size()) + "]");
      names.push_back(fields.text("token_str"));
      const int64_t rank = fields.integer("rank", -1, 0, TokenNames::kTokensMax - 1);
      if (rank != std::ssize(names) - 1) fields.refuse("rank", "expected the place in the list");
      fields.ignore_rest();
      if (Status s = fields.finish(); !s.ok()) return s;
    }
  } else {
    names.assign(kOldSpecials.begin(), kOldSpecials.end());
  }
  for (int64_t id = 0; id < config.specials; ++id) {
    const bool named = id < std::ssize(names);
    AddedToken token{
        named ? names[static_cast<size_t>(id)] : "<SPECIAL_" + std::to_string(id) + ">",
        static_cast<int32_t>(id), true};
    if (Status s = out.add_token(std::move(token), path); !s.ok()) return s;
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<TokenPipeline>> read_tekken(std::string_view text, const std::string& file) {
  ASSIGN_OR_RETURN(const Json json, parse_json(text, file, "TOKENIZER_INVALID"));
  static const Json null;
  FileFields fields(json, file);
  const Json* config_json = fields.find("config");
  const Json* vocab = fields.find("vocab");
  const Json* specials = fields.find("special_tokens");
  fields.ignore_rest();
  if (Status s = fields.finish(); !s.ok()) return std::move(s).error();
  ASSIGN_OR_RETURN(
      const TekkenConfig config,
      read_tekken_config(config_json == nullptr ? null : *config_json, file + ": config"));
  ASSIGN_OR_RETURN(std::vector<std::optional<std::string>> bytes,
                   read_ranks(vocab == nullptr ? null : *vocab, config, file + ": vocab"));
  ASSIGN_OR_RETURN(Pattern pattern, Pattern::compile(config.pattern, file + ": config.pattern"));
  auto names = std::make_shared<TokenNames>();
  for (size_t id = 0; id < bytes.size(); ++id) {
    if (!bytes[id]) continue;
    Status s = names->add(letters_of_bytes(*bytes[id]), static_cast<int64_t>(id), file + ": vocab");
    if (!s.ok()) return std::move(s).error();
  }
  auto pipeline = std::make_shared<TokenPipeline>();
  pipeline->names = names;
  BpeSettings settings;
  settings.whole_words = true;
  const std::vector<BpeMerge> merges = merges_of_ranks(bytes);
  pipeline->model =
      std::make_unique<BpeModel>(names, merges, std::move(settings), std::move(bytes));
  pipeline->pre_tokenizers.push_back(
      make_pattern_cutter(std::move(pattern), CutBehavior::kIsolated, false));
  pipeline->decoders.push_back(make_byte_letters_decoder());
  if (Status s = add_specials(specials, config, file + ": special_tokens", *pipeline); !s.ok()) {
    return std::move(s).error();
  }
  return pipeline;
}

}  // namespace trainyard
