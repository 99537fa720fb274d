#include "src/data/tokenizers/tokenizer_json.h"

#include <nlohmann/json.hpp>

#include "src/base/json_fields.h"
#include "src/data/tokenizers/file_fields.h"
#include "src/data/tokenizers/json_parts.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

Status add_added_tokens(const Json& list, const std::string& path, TokenPipeline& out) {
  if (!list.is_array()) return tokenizer_error(path, "expected a list");
  size_t i = 0;
  for (const Json& entry : list) {
    const std::string at = path + "[" + std::to_string(i++) + "]";
    FileFields fields(entry, at);
    AddedToken token = read_added_token(fields);
    token.id = static_cast<int32_t>(fields.integer("id", -1, 0, TokenNames::kTokensMax - 1));
    if (Status s = fields.finish(); !s.ok()) return s;
    if (Status s = out.add_token(std::move(token), at); !s.ok()) return s;
  }
  return {};
}

Status check_affixes(const TokenPipeline& pipeline, const std::string& path) {
  for (const auto* tokens : {&pipeline.prefix, &pipeline.suffix}) {
    for (const int32_t token : *tokens) {
      if (pipeline.name(token).empty()) {
        return tokenizer_error(path, "there is no token with the id " + std::to_string(token));
      }
    }
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<TokenPipeline>> read_tokenizer_json(std::string_view text,
                                                           const std::string& file) {
  ASSIGN_OR_RETURN(const Json json, parse_json(text, file, "TOKENIZER_INVALID"));
  static const Json null;
  FileFields fields(json, file);
  const auto part = [&](const char* key) -> const Json& {
    const Json* found = fields.find(key);
    return found == nullptr ? null : *found;
  };
  // How long a text may be is for the caller to say.
  for (const char* key : {"version", "truncation", "padding"}) fields.ignore(key);
  const Json& added = part("added_tokens");
  const Json& model = part("model");
  const Json& normalizer = part("normalizer");
  const Json& pre_tokenizer = part("pre_tokenizer");
  const Json& decoder = part("decoder");
  const Json& post_processor = part("post_processor");
  if (Status s = fields.finish(); !s.ok()) return std::move(s).error();

  auto pipeline = std::make_shared<TokenPipeline>();
  PreTokenizerParts parts;
  const auto path = [&](const char* key) { return file + ": " + key; };
  Status s = add_normalizers(normalizer, path("normalizer"), 0, pipeline->normalizers);
  if (s.ok()) s = add_pre_tokenizers(pre_tokenizer, path("pre_tokenizer"), 0, parts);
  if (s.ok()) s = read_model(model, path("model"), parts.byte_letters, *pipeline);
  if (s.ok() && !added.is_null()) s = add_added_tokens(added, path("added_tokens"), *pipeline);
  if (s.ok()) s = add_decoders(decoder, path("decoder"), 0, pipeline->decoders);
  if (s.ok()) {
    s = add_affixes(post_processor, path("post_processor"), 0, pipeline->prefix, pipeline->suffix);
  }
  if (s.ok()) s = check_affixes(*pipeline, path("post_processor"));
  if (!s.ok()) return std::move(s).error();
  if (parts.byte_letters && !pipeline->model->takes_bytes()) {
    parts.cutters.push_back(make_byte_letters_rewriter());
  }
  if (decoder.is_null()) pipeline->decoders.push_back(make_blanks_decoder());
  pipeline->pre_tokenizers = std::move(parts.cutters);
  return pipeline;
}

}  // namespace trainyard
