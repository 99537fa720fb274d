#include "src/data/documents/document_line.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "src/base/text.h"
#include "src/data/limits.h"

namespace trainyard {
namespace {

constexpr const char* kExpected = R"(expected {"messages": [{"role": ..., "content": ...}, ...]}, )"
                                  R"({"prompt": ..., "completion": ...} or {"text": ...})";
constexpr size_t kOthersMax = 64;  // names of members that are not read, for the warning

std::string member_place(const std::string& place, const std::string& member) {
  return place + ", member " + quoted_value(member);
}

/// Stores the members that are read, and skips all others without storing them.
class DocumentHandler final : public nlohmann::json_sax<nlohmann::json> {
 public:
  DocumentHandler(const std::string& place, Problems& problems, std::set<std::string>& others)
      : place_(place), problems_(problems), others_(others) {}
  DocumentLine line;
  bool failed = false;

  bool start_object(size_t) override {
    if (skipped_ > 0 || depth_ == 1 || depth_ == 3) return open_other("an object");
    if (depth_ == 2) {  // an item of the messages
      messages().emplace_back();
      has_role_ = has_content_ = false;
    }
    ++depth_;
    return true;
  }
  bool end_object() override {
    if (skipped_ > 0) return close_other();
    if (--depth_ != 2) return true;
    const std::string item = item_name();
    if (!has_role_) refuse(item + ".role", "is missing, expected user or assistant");
    if (!has_content_) refuse(item + ".content", "is missing, expected text");
    return true;
  }
  bool start_array(size_t) override {
    if (depth_ == 0) return refuse_top();
    if (skipped_ > 0 || depth_ != 1 || name_ != "messages") return open_other("a list");
    line.messages.emplace();
    depth_ = 2;
    return true;
  }
  bool end_array() override {
    if (skipped_ > 0) return close_other();
    depth_ = 1;
    return true;
  }
  bool key(string_t& name) override {
    if (skipped_ > 0) return true;
    name_ = name;
    if (depth_ == 1 && is_member(name_) && !seen_.insert(name_).second) {
      refuse(name_, "appears twice");
    }
    return true;
  }
  bool null() override {
    return skipped_ > 0 || depth_ > 0 ? other_value("null", true) : refuse_top();
  }
  bool boolean(bool) override { return scalar("true or false"); }
  bool number_integer(number_integer_t) override { return scalar("a number"); }
  bool number_unsigned(number_unsigned_t) override { return scalar("a number"); }
  bool number_float(number_float_t, const string_t&) override { return scalar("a number"); }
  bool binary(binary_t&) override { return scalar("a binary value"); }
  bool string(string_t& value) override {
    if (depth_ == 0) return refuse_top();
    if (skipped_ > 0) return true;
    if (depth_ == 2) return refuse_item("text");
    if (depth_ == 3) return message_text(std::move(value));
    if (name_ == "messages") {
      refuse(name_, "text, expected a list of {\"role\": ..., \"content\": ...}");
    } else if (std::optional<std::string>* member = text_member(); member != nullptr) {
      *member = std::move(value);
    } else {
      add_other(name_);
    }
    return true;
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& e) override {
    // The exception's message is not shown, since it may contain raw bytes.
    const bool utf8 = std::string_view(e.what()).find("UTF-8") != std::string_view::npos;
    problems_.add(place_, std::string(utf8 ? "not UTF-8" : "not JSON") + " at byte " +
                              std::to_string(position) + ", " + kExpected);
    failed = true;
    return false;
  }

 private:
  static bool is_member(std::string_view name) {
    return name == "messages" || name == "prompt" || name == "completion" || name == "text";
  }
  std::vector<Message>& messages() { return *line.messages; }
  std::string item_name() const {
    return "messages[" + std::to_string(line.messages->size() - 1) + "]";
  }
  std::optional<std::string>* text_member() {
    return name_ == "prompt"       ? &line.prompt
           : name_ == "completion" ? &line.completion
           : name_ == "text"       ? &line.text
                                   : nullptr;
  }
  void add_other(const std::string& name) {
    if (others_.size() < kOthersMax && name.size() <= kNameBytesMax) others_.insert(name);
  }
  void refuse(const std::string& member, const std::string& why) {
    problems_.add(member_place(place_, member), why);
    failed = true;
  }
  bool refuse_top() {
    problems_.add(place_, std::string("a value that is not in an object, ") + kExpected);
    failed = true;
    return false;
  }
  bool refuse_item(const std::string& what) {
    refuse("messages[" + std::to_string(line.messages->size()) + "]",
           what + ", expected {\"role\": ..., \"content\": ...}");
    return true;
  }
  bool scalar(const char* what) {
    if (depth_ == 0) return refuse_top();
    return skipped_ > 0 || other_value(what, false);
  }
  /// A value that is no text.
  bool other_value(const std::string& what, bool is_null) {
    if (skipped_ > 0) return true;
    if (depth_ == 2) return refuse_item(what);
    if (depth_ == 3) {
      message_other(what, is_null);
    } else if (!is_member(name_)) {
      add_other(name_);
    } else if (!is_null) {
      refuse(name_,
             what + ", expected " +
                 (name_ == "messages" ? "a list of {\"role\": ..., \"content\": ...}" : "text"));
    }
    return true;
  }
  bool open_other(const char* what) {
    if (skipped_ == 0) (void)other_value(what, false);
    ++skipped_;
    return true;
  }
  bool close_other() {
    --skipped_;
    return true;
  }
  bool message_text(std::string value) {
    Message& message = messages().back();
    if (name_ == "role") {
      has_role_ = true;
      message.role = std::move(value);
    } else if (name_ == "content") {
      has_content_ = true;
      message.content = std::move(value);
    } else {
      add_other("messages[]." + name_);
    }
    return true;
  }
  void message_other(const std::string& what, bool is_null) {
    const std::string member = item_name() + "." + name_;
    if (name_ == "role" || name_ == "content") {
      (name_ == "role" ? has_role_ : has_content_) = true;
      refuse(member, what + ", expected text");
    } else if (!is_null && (name_ == "tool_calls" || name_ == "function_call")) {
      refuse(member, "calls of tools are not supported, expected only role and content");
    } else {
      add_other("messages[]." + name_);
    }
  }

  const std::string& place_;
  Problems& problems_;
  std::set<std::string>& others_;
  std::set<std::string, std::less<>> seen_;
  // 0: outside, 1: in the line's object, 2: in the list of messages, 3: in a message.
  int depth_ = 0;
  int64_t skipped_ = 0;  // open objects and lists that are not read
  bool has_role_ = false, has_content_ = false;
  std::string name_;
};

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n") == text.npos; }

/// Returns what may follow a message of this role.
std::vector<std::string_view> followers(std::string_view role) {
  if (role.empty()) return {"system", "user"};
  if (role == "system") return {"user"};
  if (role == "user" || role == "tool") return {"assistant"};
  return {"user", "tool"};
}

/// Checks the roles of a chat and that answers are not empty. Which roles a model's template has is
/// checked when the chat is rendered.
class ChatCheck {
 public:
  ChatCheck(const std::string& place, bool answers, Problems& problems)
      : place_(place), answers_(answers), problems_(problems) {}
  bool run(const std::vector<Message>& messages) {
    if (messages.empty()) {
      refuse("messages",
             "is empty, expected at least a question of the user and an answer of the "
             "assistant");
      return ok_;
    }
    std::string_view before;
    for (size_t i = 0; i < messages.size(); ++i) {
      const std::string item = "messages[" + std::to_string(i) + "].";
      const std::string_view role = canonical(messages[i].role);
      if (!check_role(item + "role", messages[i].role, role, before)) return ok_;
      if (role == "assistant" && is_blank(messages[i].content)) {
        refuse(item + "content", "is an empty answer, expected text");
      }
      before = role;
    }
    if (before != "assistant" && answers_) {
      refuse("messages[" + std::to_string(messages.size() - 1) + "].role",
             quoted_value(messages.back().role) +
                 " is the last, expected that a message of the assistant follows");
    }
    return ok_;
  }

 private:
  static std::string_view canonical(std::string_view role) {
    if (role == "developer") return "system";
    if (role == "ipython" || role == "function") return "tool";
    return role;
  }
  bool check_role(const std::string& member, const std::string& role, std::string_view known,
                  std::string_view before) {
    static constexpr std::array<std::string_view, 4> kRoles = {"system", "user", "assistant",
                                                               "tool"};
    if (std::ranges::find(kRoles, known) == kRoles.end()) {
      const std::string hint = role == "human" ? "; did you mean 'user'?"
                               : role == "gpt" || role == "model" || role == "bot"
                                   ? "; did you mean 'assistant'?"
                                   : "";
      refuse(member, quoted_value(role) + ", expected system, user, assistant or tool" + hint);
      return false;
    }
    const std::vector<std::string_view> allowed = followers(before);
    if (std::ranges::find(allowed, known) != allowed.end()) return true;
    std::string expected;
    for (const std::string_view a : allowed) {
      expected += (expected.empty() ? "" : " or ") + std::string(a);
    }
    refuse(member, quoted_value(role) +
                       (before.empty() ? " begins the chat"
                                       : " follows a message of the " + std::string(before)) +
                       ", expected " + expected);
    return false;
  }
  void refuse(const std::string& member, const std::string& why) {
    problems_.add(member_place(place_, member), why);
    ok_ = false;
  }

  const std::string& place_;
  const bool answers_;
  Problems& problems_;
  bool ok_ = true;
};

/// Checks which members a line has together.
bool check_members(const DocumentLine& line, const std::string& place, bool answers,
                   const std::set<std::string>& others, Problems& problems) {
  const bool pair = line.prompt || line.completion;
  const int kinds = int{line.messages.has_value()} + int{pair} + int{line.text.has_value()};
  const auto refuse = [&](const std::string& member, const std::string& why) {
    problems.add(member.empty() ? place : member_place(place, member), why);
    return false;
  };
  if (kinds > 1) {
    return refuse(
        "", std::string("has ") +
                (line.messages ? pair ? "messages and prompt or completion" : "messages and text"
                               : "prompt or completion and text") +
                ", expected only one kind of document in a line");
  }
  if (kinds == 0) {
    const bool shared = others.contains("conversations");
    return refuse("", std::string("has no document, ") + kExpected +
                          (shared ? "; rename 'conversations' to messages, 'from' to role (human: "
                                    "user, gpt: assistant) and 'value' to content"
                                  : ""));
  }
  if (line.messages) return ChatCheck(place, answers, problems).run(*line.messages);
  if (pair) {
    if (!line.prompt) return refuse("prompt", "is missing beside completion");
    if (!line.completion) return refuse("completion", "is missing beside prompt");
    if (is_blank(*line.completion)) return refuse("completion", "is empty, expected text");
    return true;
  }
  return is_blank(*line.text) ? refuse("text", "is empty, expected text") : true;
}

}  // namespace

std::optional<DocumentLine> read_document_line(std::string_view line, const std::string& place,
                                               bool answers, Problems& problems,
                                               std::set<std::string>& others) {
  std::set<std::string> unread;
  DocumentHandler handler(place, problems, unread);
  (void)nlohmann::json::sax_parse(line.begin(), line.end(), &handler);
  const bool usable =
      !handler.failed && check_members(handler.line, place, answers, unread, problems);
  for (const std::string& name : unread) {
    if (others.size() < kOthersMax) others.insert(name);
  }
  if (!usable) return std::nullopt;
  return std::move(handler.line);
}

}  // namespace trainyard
