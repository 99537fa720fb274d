// src/data/tokenizers/json_parts.h: the parts of tokenizer.json, each of which has a type and may
// be a sequence of such parts. `path` names the part in messages.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "src/data/tokenizers/token_pipeline.h"

namespace trainyard {

// tokenizer.json has sequences of sequences; deeper ones are refused.
inline constexpr int kPartDepthMax = 8;

Status add_normalizers(const nlohmann::json& part, const std::string& path, int depth,
                       TextRewriters& out);

struct PreTokenizerParts {
  TextRewriters cutters;
  // Whether the last part writes bytes as letters (byte_letters.h), which is not among `cutters`.
  bool byte_letters = false;
};
Status add_pre_tokenizers(const nlohmann::json& part, const std::string& path, int depth,
                          PreTokenizerParts& out);
Status add_decoders(const nlohmann::json& part, const std::string& path, int depth,
                    DecoderSteps& out);
/// Adds the tokens around a single text.
Status add_affixes(const nlohmann::json& part, const std::string& path, int depth,
                   std::vector<int32_t>& prefix, std::vector<int32_t>& suffix);
/// Reads the model's vocabulary and rule. `byte_letters`: its pieces are bytes written as letters;
/// if the model takes bytes instead, the caller need not write letters.
Status read_model(const nlohmann::json& part, const std::string& path, bool byte_letters,
                  TokenPipeline& out);

}  // namespace trainyard
