#include "src/data/tokenizers/chat_template.h"

#include <algorithm>
#include <optional>

#include "src/base/text.h"
#include "src/base/unicode.h"
#include "src/data/tokenizers/chat_families.h"

namespace trainyard {
namespace {

constexpr std::string_view kLlamaDates =
    "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";
// SmolLM3's template writes the day on which it runs; this is the day of the model's release.
constexpr std::string_view kSmolDates =
    "## Metadata\n\nKnowledge Cutoff Date: June 2025\nToday Date: 08 July 2025\nReasoning Mode: ";
constexpr std::string_view kSmolThinks =
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face. Your role as an "
    "assistant involves thoroughly exploring questions through a systematic thinking process "
    "before "
    "providing the final precise and accurate solutions. This requires engaging in a comprehensive "
    "cycle of analysis, summarizing, exploration, reassessment, reflection, backtracking, and "
    "iteration to develop well-considered thinking process. Please structure your response into "
    "two "
    "main sections: Thought and Solution using the specified format: <think> Thought section "
    "</think> Solution section. In the Thought section, detail your reasoning process in steps. "
    "Each step should include detailed considerations such as analysing questions, summarizing "
    "relevant findings, brainstorming new ideas, verifying the accuracy of the current steps, "
    "refining any errors, and revisiting previous steps. In the Solution section, based on various "
    "attempts, explorations, and reflections from the Thought section, systematically present the "
    "final solution that you deem correct. The Solution section should be logical, accurate, and "
    "concise and detail necessary steps needed to reach the conclusion.";
constexpr std::string_view kSmolAnswers =
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face.";
constexpr std::string_view kNoThoughts = "<think>\n\n</think>\n";
constexpr std::string_view kThinkEnd = "</think>";

bool is_stripped(char32_t c) { return is_white_space(c) || (c >= 0x1c && c <= 0x1f); }

/// Removes white space at both ends, by Python's rules.
std::string_view strip(std::string_view text) {
  size_t first = text.size();
  size_t last = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t begin = text.size() - rest.size();
    if (is_stripped(take_code_point(rest))) continue;
    first = std::min(first, begin);
    last = text.size() - rest.size();
  }
  return first < last ? text.substr(first, last - first) : std::string_view();
}

std::string_view strip_right(std::string_view text) {
  const std::string_view stripped = strip(text);
  if (stripped.empty()) return stripped;
  return text.substr(0, static_cast<size_t>(stripped.data() + stripped.size() - text.data()));
}

void remove_all(std::string& text, std::string_view part) {
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos;) text.erase(at, part.size());
}

std::string_view strip_lines_left(std::string_view text) {
  while (text.starts_with('\n')) text.remove_prefix(1);
  return text;
}
std::string_view strip_lines_right(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

Error chat_error(size_t message, const char* member, const std::string& what) {
  return field_error("CHAT_INVALID", "messages[" + std::to_string(message) + "]." + member, what);
}

enum class Role : uint8_t { kSystem, kUser, kAssistant };
std::optional<Role> find_role(std::string_view name) {
  if (name == "system") return Role::kSystem;
  if (name == "user") return Role::kUser;
  if (name == "assistant") return Role::kAssistant;
  return std::nullopt;
}

/// Checks the roles and contents of a chat against a family.
Status check_chat(const ChatFamily& family, std::span<const Message> messages) {
  using System = ChatFamily::System;
  if (messages.empty()) return field_error("CHAT_INVALID", "messages", "is empty");
  const bool system_first = messages[0].role == "system";
  const bool merged = family.system != System::kMessage && family.system != System::kRequired;
  for (size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    const std::optional<Role> role = find_role(message.role);
    if (!role) {
      return chat_error(
          i, "role",
          quoted_value(message.role) + " is not known, expected system, user or assistant");
    }
    if (!is_utf8(message.content)) return chat_error(i, "content", "is not UTF-8");
    if (message.content.empty() && *role != Role::kSystem) {
      return chat_error(i, "content", "is empty");
    }
    if (*role == Role::kSystem) {
      if (family.system == System::kNone) {
        return chat_error(i, "role",
                          "the template " + std::string(family.name) +
                              " has no system messages, expected user or assistant");
      }
      if (i > 0 && (merged || family.order == ChatFamily::Order::kAlternating)) {
        return chat_error(i, "role", "a system message is only possible as the first one");
      }
      continue;
    }
    if (family.order == ChatFamily::Order::kAny) continue;
    const bool expects_user = (i - (system_first ? 1 : 0)) % 2 == 0;
    if ((*role == Role::kUser) != expects_user) {
      return chat_error(i, "role",
                        std::string("is ") + message.role + ", expected " +
                            (expects_user ? "user" : "assistant") +
                            ", since users and assistants take turns");
    }
  }
  const bool alone = system_first && messages.size() == 1;
  if (alone && (family.system == System::kFirstUser || family.system == System::kRequired)) {
    return field_error("CHAT_INVALID", "messages", "has no message of a user");
  }
  if (family.system == System::kRequired && !system_first) {
    return chat_error(0, "role",
                      "is " + messages[0].role + ", but the template " + std::string(family.name) +
                          " would insert a system message with today's date; write one, so that "
                          "the same data always gives the same tokens");
  }
  return {};
}

class Renderer {
 public:
  Renderer(const ChatFamily& family, std::string_view begin, std::string_view end)
      : family_(family), begin_(begin), end_(end) {}

  void put(std::string_view text, bool counted) {
    if (text.empty()) return;
    if (parts_.empty() || parts_.back().counted != counted) parts_.push_back({{}, counted});
    parts_.back().text += text;
  }
  /// Writes a text of the family.
  void put_frame(std::string_view frame, bool counted) {
    while (!frame.empty()) {
      const size_t brace = frame.find('{');
      put(frame.substr(0, brace), counted);
      if (brace == std::string_view::npos) return;
      frame.remove_prefix(brace);
      const bool begin = frame.starts_with("{begin}");
      put(begin ? begin_ : end_, counted);
      frame.remove_prefix(frame.find('}') + 1);
    }
  }
  std::vector<RenderedPart> take() { return std::move(parts_); }

  void put_system(std::string_view content) {
    put_frame(family_.system_before, false);
    if (family_.system == ChatFamily::System::kHeader) put(kLlamaDates, false);
    put(family_.trim == ChatFamily::Trim::kAll ? strip(content) : content, false);
    put_frame(family_.system_after, false);
  }

  /// SmolLM3's system message, which says whether the model thinks before it answers.
  void put_reasoning(std::string_view content) {
    const auto has = [&](std::string_view part) { return content.find(part) != content.npos; };
    answers_at_once_ = has("/no_think");
    std::string instructions(content);
    remove_all(instructions, "/no_think");
    remove_all(instructions, "/think");
    put_frame(family_.system_before, false);
    if (has("/system_override")) {
      instructions = strip_right(instructions);
      remove_all(instructions, "/system_override");
      put(strip_right(instructions), false);
      put_frame(family_.system_after, false);
      return;
    }
    put(kSmolDates, false);
    put(answers_at_once_ ? "/no_think" : "/think", false);
    put("\n\n## Custom Instructions\n\n", false);
    const std::string_view own = strip_right(instructions);
    put(!own.empty() ? own : answers_at_once_ ? kSmolAnswers : kSmolThinks, false);
    put("\n\n", false);  // the template ends this message only where there are tools
  }
  /// Writes what stands before an answer, whether the answer exists or is to be generated.
  void put_before_answer() {
    put_frame(family_.answer_before, false);
    if (answers_at_once_) put(kNoThoughts, false);
  }

  /// `system`: the content of a system message that is a part of this one.
  void put_user(std::string_view content, const std::string* system) {
    std::string whole;
    if (system != nullptr) {
      whole.append(family_.system_before).append(*system).append(family_.system_after);
    }
    whole += content;
    put_frame(family_.user_before, false);
    put(family_.trim == ChatFamily::Trim::kAll ? strip(whole) : std::string_view(whole), false);
    put_frame(family_.user_after, false);
  }

  void put_answer(std::string_view content, bool last, bool after_last_user) {
    put_before_answer();
    put_frame(family_.answer_first, true);
    if (family_.thoughts == ChatFamily::Thoughts::kQwen) {
      put_thoughts(content, last, after_last_user);
    } else if (family_.system == ChatFamily::System::kReasoning) {
      put(strip_lines_left(content), true);
    } else {
      put(family_.trim == ChatFamily::Trim::kNone ? content : strip(content), true);
    }
    put_frame(family_.answer_last, true);
    if (!last || !family_.no_after_at_end) put_frame(family_.answer_after, false);
  }

 private:
  /// Thoughts are written only in answers to the last user's message.
  void put_thoughts(std::string_view content, bool last, bool after_last_user) {
    std::string_view thoughts;
    const size_t end = content.find(kThinkEnd);
    if (end != std::string_view::npos) {
      thoughts = strip_lines_right(content.substr(0, end));
      constexpr std::string_view kThinkBegin = "<think>";
      const size_t begin = thoughts.rfind(kThinkBegin);
      if (begin != std::string_view::npos) thoughts.remove_prefix(begin + kThinkBegin.size());
      thoughts = strip_lines_left(thoughts);
      content = strip_lines_left(content.substr(content.rfind(kThinkEnd) + kThinkEnd.size()));
    }
    if (after_last_user && (last || !thoughts.empty())) {
      put("<think>\n", true);
      put(strip_lines_right(strip_lines_left(thoughts)), true);
      put("\n</think>\n\n", true);
      content = strip_lines_left(content);
    }
    put(content, true);
  }

  const ChatFamily& family_;
  std::string_view begin_, end_;
  std::vector<RenderedPart> parts_;
  bool answers_at_once_ = false;  // SmolLM3 does not think
};

/// Returns the index of the last message of a user; the last message if there is none. Results of
/// tools, which Qwen3 writes as messages of users, do not count.
size_t last_user_message(std::span<const Message> messages) {
  for (size_t i = messages.size(); i-- > 0;) {
    const std::string_view content = messages[i].content;
    const bool tool =
        content.starts_with("<tool_response>") && content.ends_with("</tool_response>");
    if (messages[i].role == "user" && !tool) return i;
  }
  return messages.size() - 1;
}

Error unknown_template(const std::string& what) {
  std::string known;
  for (const ChatFamily& family : chat_families()) {
    known += (known.empty() ? "" : ", ") + std::string(family.name);
  }
  return make_error(ErrorCode::kInvalidArgument, "TEMPLATE_UNKNOWN",
                    what + "; name the one that the model was trained with as template: NAME, " +
                        "where NAME is one of " + known);
}

Error tokenizer_lacks(const std::string& what, std::string_view family) {
  return make_error(ErrorCode::kInvalidArgument, "TEMPLATE_UNKNOWN",
                    "the template " + std::string(family) + " needs the " + what +
                        ", which tokenizer_config.json does not name");
}

}  // namespace

ChatTemplate::ChatTemplate(const ChatFamily& family, const PretrainedTokenizer& tokenizer)
    : family_(&family),
      begin_(tokenizer.name(tokenizer.begin_token().value_or(-1))),
      end_(tokenizer.name(tokenizer.end_token())) {}

Result<ChatTemplate> ChatTemplate::find(std::string_view name,
                                        const PretrainedTokenizer& tokenizer) {
  if (name.empty() && tokenizer.chat_template().empty()) {
    return unknown_template("the tokenizer has no chat template");
  }
  const std::string& text = tokenizer.chat_template();
  const std::string digest = name.empty() ? template_digest(text) : std::string();
  const std::string compact = name.empty() ? template_digest(text, /*compact=*/true) : digest;
  for (const ChatFamily& family : chat_families()) {
    const bool found = name.empty() ? std::ranges::count(family.digests, digest) > 0 ||
                                          std::ranges::count(family.digests, compact) > 0
                                    : family.name == name;
    if (!found) continue;
    ChatTemplate result(family, tokenizer);
    for (const std::string_view frame :
         {family.start, family.user_before, family.user_after, family.answer_last}) {
      if (frame.find("{begin}") != std::string_view::npos && result.begin_.empty()) {
        return tokenizer_lacks("begin token (bos_token)", family.name);
      }
      if (frame.find("{end}") != std::string_view::npos && result.end_.empty()) {
        return tokenizer_lacks("end token (eos_token)", family.name);
      }
    }
    return result;
  }
  if (!name.empty())
    return unknown_template("the template " + quoted_value(name) + " is not known");
  return unknown_template("the model's chat template is a program that is not known (" + digest +
                          "), and programs of models are not executed");
}

std::vector<std::string> ChatTemplate::names() {
  std::vector<std::string> names;
  for (const ChatFamily& family : chat_families()) names.emplace_back(family.name);
  return names;
}

std::string_view ChatTemplate::name() const { return family_->name; }

Result<std::vector<RenderedPart>> ChatTemplate::render(std::span<const Message> messages,
                                                       bool add_generation_prompt) const {
  using System = ChatFamily::System;
  const ChatFamily& family = *family_;
  if (Status s = check_chat(family, messages); !s.ok()) return std::move(s).error();
  Renderer out(family, begin_, end_);
  out.put_frame(family.start, false);
  const bool system_first = messages[0].role == "system";
  if (family.system == System::kHeader) {
    out.put_system(system_first ? std::string_view(messages[0].content) : std::string_view());
  } else if (family.system == System::kReasoning) {
    out.put_reasoning(system_first ? std::string_view(messages[0].content) : std::string_view());
  } else if (!family.default_system.empty() && !system_first) {
    out.put_system(family.default_system);
  }
  const bool separate = family.system == System::kMessage || family.system == System::kRequired;
  const size_t last_user = last_user_message(messages);
  for (size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    const bool last = i + 1 == messages.size();
    if (message.role == "system") {
      if (separate) out.put_system(message.content);
    } else if (message.role == "user") {
      const bool first = i == 1 && family.system == System::kFirstUser;
      const bool final = last && family.system == System::kLastUser;
      out.put_user(message.content,
                   system_first && (first || final) ? &messages[0].content : nullptr);
    } else {
      out.put_answer(message.content, last, i > last_user);
    }
  }
  if (add_generation_prompt) out.put_before_answer();
  return out.take();
}

void encode_chat(const PretrainedTokenizer& tokenizer, std::span<const RenderedPart> parts,
                 std::vector<int32_t>& tokens, std::vector<uint8_t>& counted) {
  std::string text;
  for (const RenderedPart& part : parts) text += part.text;
  std::vector<uint32_t> starts;
  tokenizer.encode(text, true, tokens, &starts);
  size_t part = 0;
  size_t end = parts.empty() ? 0 : parts[0].text.size();
  for (const uint32_t start : starts) {
    while (start >= end && part + 1 < parts.size()) end += parts[++part].text.size();
    counted.push_back(!parts.empty() && parts[part].counted ? 1 : 0);
  }
}

}  // namespace trainyard
