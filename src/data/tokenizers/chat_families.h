// src/data/tokenizers/chat_families.h: the chat templates that are known, as data.
//
// Most families write each message as text around its content. `{begin}` and `{end}` in these texts
// stand for the tokenizer's begin and end tokens.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace trainyard {

struct ChatFamily {
  enum class Order : uint8_t { kAny, kAlternating };  // user and assistant, after a system message
  enum class System : uint8_t {
    kMessage,    // a message like others
    kFirstUser,  // a part of the first user's message
    kLastUser,   // a part of the user's message that ends the chat; else it is left out
    kHeader,     // Llama 3.1: after lines with dates; they are there without a system message too
    kRequired,   // must be there, since the template would insert today's date
    kReasoning,  // SmolLM3: after lines with the date and the mode of reasoning, or by itself
    kNone,       // there is none
  };
  enum class Trim : uint8_t { kNone, kAll, kAnswers };  // of white space around contents
  enum class Thoughts : uint8_t { kNone, kQwen };       // the model thinks before it answers

  std::string_view name;
  std::string_view models;      // for the documentation
  std::string_view start = {};  // of the chat
  std::string_view system_before = {}, system_after = {};
  std::string_view user_before = {}, user_after = {};
  // Around answers: what is a part of the prompt, what the model itself writes first and last, with
  // the token that ends the answer, and what follows that.
  std::string_view answer_before = {}, answer_first = {}, answer_last = {}, answer_after = {};
  std::string_view default_system = {};  // if the chat does not begin with a system message
  Order order = Order::kAny;
  System system = System::kMessage;
  Trim trim = Trim::kNone;
  Thoughts thoughts = Thoughts::kNone;
  bool no_after_at_end = false;  // the last answer is not followed by `answer_after`
  // The beginnings of the SHA-256 of the templates' texts, in a form of canonical_template().
  std::array<std::string_view, 4> digests = {};
};

std::span<const ChatFamily> chat_families();

/// Returns the text of a Jinja template in a form in which equal programs are more often equal: in
/// tags, without needless blanks, with one kind of quotes, and with literals joined that are added.
/// The text between tags is kept as it is, or with `compact` without the blanks that the dashes of
/// tags remove.
std::string canonical_template(std::string_view text, bool compact = false);

/// Returns the digest by which a template is looked up. Each template has two, since some are known
/// only in their compact form.
std::string template_digest(std::string_view text, bool compact = false);

}  // namespace trainyard
