#include "src/pretrained/gguf/split_patterns.h"

#include <algorithm>

namespace trainyard {
namespace {

using Cut = SplitPattern::Cut;

// The patterns are those of the models' own tokenizer.json.
constexpr std::string_view kGpt4Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekkenPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::array kPatterns = std::to_array<SplitPattern>({
    {.names = {"gpt-2"}, .cut = Cut::kGpt2},
    {.names = {"llama-bpe", "llama3", "llama-v3"},
     .pattern = kGpt4Pattern,
     .keeps_whole_words = true,
     .begins = true},
    {.names = {"dbrx"}, .pattern = kGpt4Pattern},  // OLMo 2
    {.names = {"qwen2", "deepseek-r1-qwen"}, .pattern = kQwen2Pattern, .composes = true},
    {.names = {"smollm", "starcoder", "refact"}, .cut = Cut::kDigits},  // refact: Granite 3
    {.names = {"tekken"}, .pattern = kTekkenPattern, .keeps_whole_words = true, .begins = true},
});

}  // namespace

const SplitPattern* find_split_pattern(std::string_view name) {
  const auto* const found = std::ranges::find_if(kPatterns, [&](const SplitPattern& pattern) {
    return !name.empty() && std::ranges::find(pattern.names, name) != pattern.names.end();
  });
  return found == kPatterns.end() ? nullptr : found;
}

std::string split_pattern_names() {
  std::string text;
  for (const SplitPattern& pattern : kPatterns) {
    for (const std::string_view name : pattern.names) {
      if (!name.empty()) text += (text.empty() ? "" : ", ") + std::string(name);
    }
  }
  return text;
}

}  // namespace trainyard
