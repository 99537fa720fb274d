#include "src/inference/prompt_reader.h"

#include <algorithm>

#include "src/base/text.h"

namespace trainyard {
namespace {

Error prompt_error(const std::string& description) {
  return field_error("PROMPT_INVALID", "prompt", description);
}

}  // namespace

PromptReader::PromptReader(const ModelInfo& info)
    : text_(info.schema.text),
      slides_(info.schema.stream()),
      tokenizer_(make_tokenizer(text_)),
      texts_(token_texts(text_)) {}

bool PromptReader::is_end(int32_t token) const {
  return std::ranges::find(ends_, token) != ends_.end();
}

bool PromptReader::may_draw(int64_t id) const {
  if (id >= vocabulary_size()) return false;
  // Padding and the unknown token have no text.
  return !texts_[static_cast<size_t>(id)].empty() || is_end(static_cast<int32_t>(id));
}

Result<std::vector<int32_t>> PromptReader::read(const Prompt& prompt) const {
  if (prompt.messages.empty()) return read_text(prompt.text);
  return field_error("MESSAGES_UNSUPPORTED", "messages",
                     "the model's tokenizer has no template for chats; expected a prompt");
}

Result<std::vector<int32_t>> PromptReader::read_text(std::string_view text) const {
  if (text.empty()) return prompt_error("is empty, expected the text to continue");
  if (whole_characters() && !is_utf8(text)) return prompt_error("is not UTF-8");
  std::vector<int32_t> tokens;
  tokenizer_->encode(text, std::ssize(text), tokens);
  const auto unknown = std::ranges::find(tokens, static_cast<int32_t>(text_.unknown_id()));
  if (unknown != tokens.end()) {
    for (auto i = tokens.begin(); i != unknown; ++i) (void)take_code_point(text);
    std::string character;
    append_utf8(character, take_code_point(text));
    return prompt_error("the training text did not contain " + quoted_value(character));
  }
  return tokens;
}

}  // namespace trainyard
