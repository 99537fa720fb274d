// src/data/tokenizers/chat_template.h: how the messages of a chat become one text.
//
// A model's template is a program in the language Jinja. It is not executed. The templates of the
// known families are here as data and code, and a model's template is recognized by its text. A
// template that is not known is refused; the user may name a known one instead.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/data/tokenizers/pretrained_tokenizer.h"

namespace trainyard {

struct Message {
  std::string role;  // system, user, assistant, and where the family has them tool or ipython
  std::string content;
};

struct RenderedPart {
  std::string text;
  bool counted = false;  // an assistant's answer with the token that ends it
};

struct ChatFamily;

class ChatTemplate {
 public:
  /// Finds a template by the name of a family ("chatml"), or, if `name` is empty, by the text of
  /// the tokenizer's template. Refusal: INVALID_ARGUMENT/TEMPLATE_UNKNOWN, which says what to do.
  static Result<ChatTemplate> find(std::string_view name, const PretrainedTokenizer& tokenizer);
  /// Returns the names of all families, for messages and documentation.
  static std::vector<std::string> names();

  std::string_view name() const;
  /// Returns the chat as transformers' apply_chat_template does. `add_generation_prompt`: ends with
  /// the begin of an answer, for generation. Refusal: INVALID_ARGUMENT/CHAT_INVALID, which names
  /// the member: "messages[2].role: ...".
  Result<std::vector<RenderedPart>> render(std::span<const Message> messages,
                                           bool add_generation_prompt) const;

 private:
  ChatTemplate(const ChatFamily& family, const PretrainedTokenizer& tokenizer);

  const ChatFamily* family_;
  std::string begin_, end_;  // the texts of the tokenizer's begin and end tokens
};

/// Appends the tokens of a rendered chat, and for each whether it is counted: the chat is encoded
/// as one text, as transformers does, and a token is counted if its first byte is.
void encode_chat(const PretrainedTokenizer& tokenizer, std::span<const RenderedPart> parts,
                 std::vector<int32_t>& tokens, std::vector<uint8_t>& counted);

}  // namespace trainyard
