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
      slides_(info.schema.stream() && text_.tokenizer != TokenizerKind::kPretrained),
      template_(info.schema.documents.has_value() ? info.schema.documents->chat_template : "") {
  const bool is_pretrained = text_.tokenizer == TokenizerKind::kPretrained;
  if (text_.end_token >= 0) ends_.push_back(text_.end_token);
  if (is_pretrained) {
    pretrained_.emplace(pretrained_tokenizer(text_));
    ends_.assign(pretrained_->stop_tokens().begin(), pretrained_->stop_tokens().end());
  } else {
    tokenizer_ = make_tokenizer(text_);
  }
  texts_ = token_texts(text_);
  for (size_t id = 0; id < texts_.size(); ++id) {
    const auto token = static_cast<int32_t>(id);
    if (is_pretrained) {
      drawn_.push_back(!pretrained_->name(token).empty());
      if (pretrained_->is_special(token)) texts_[id].clear();
    } else {
      // Padding and the unknown token have no text.
      drawn_.push_back(!texts_[id].empty() || is_end(token));
    }
  }
}

bool PromptReader::is_end(int32_t token) const {
  return std::ranges::find(ends_, token) != ends_.end();
}

Result<std::vector<int32_t>> PromptReader::read(const Prompt& prompt) const {
  return prompt.messages.empty() ? read_text(prompt.text) : read_chat(prompt.messages);
}

Result<std::vector<int32_t>> PromptReader::read_chat(const std::vector<Message>& messages) const {
  if (!pretrained_.has_value()) {
    return field_error("MESSAGES_UNSUPPORTED", "messages",
                       "the model's tokenizer has no template for chats; expected a prompt");
  }
  ASSIGN_OR_RETURN(const ChatTemplate chat, ChatTemplate::find(template_, *pretrained_));
  ASSIGN_OR_RETURN(const std::vector<RenderedPart> parts, chat.render(messages, true));
  std::vector<int32_t> tokens;
  std::vector<uint8_t> counted;
  encode_chat(*pretrained_, parts, tokens, counted);
  return tokens;
}

Result<std::vector<int32_t>> PromptReader::read_text(std::string_view text) const {
  if (text.empty()) return prompt_error("is empty, expected the text to continue");
  if (whole_characters() && !is_utf8(text)) return prompt_error("is not UTF-8");
  std::vector<int32_t> tokens;
  if (pretrained_.has_value()) {
    tokens.assign(pretrained_->prefix().begin(), pretrained_->prefix().end());
    pretrained_->encode(text, true, tokens);
    if (tokens.empty()) return prompt_error("has no tokens, expected a text to continue");
    return tokens;
  }
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
