// trainyard chat: a chat with a language model, line by line. The history is here, and each call
// sends all of it; the worker keeps what it has computed of it.
#include <unistd.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "client/cli/command.h"
#include "client/cli/generate_options.h"
#include "src/base/text.h"

namespace trainyard::cli {
namespace {

struct ChatOptions {
  std::string model;
  std::string system;
  GenerateFlags flags = {.tokens = 512, .temperature = 0.7, .stop = {}};
};

constexpr std::string_view kTooLong = "PROMPT_TOO_LONG";

class Chat {
 public:
  Chat(Session& session, client::Client& server, v1::GenerateRequest request)
      : session_(session), server_(server), request_(std::move(request)) {
    system_count_ = request_.messages_size();
  }

  void reset() { drop(system_count_, request_.messages_size()); }

  /// Sends the history with another message and prints the answer. The message and what came of the
  /// answer are then part of the history. If the call is refused, the history is as before.
  Status answer(const std::string& text) {
    add("user", text);
    Status done;
    while (true) {
      done = ask();
      const bool is_too_long = !done.ok() && done.error().reason == kTooLong;
      if (!is_too_long || request_.messages_size() - system_count_ < 3) break;
      drop(system_count_, system_count_ + 2);  // the oldest question and its answer
      session_.err().line(
          "note: the chat is longer than the model sees; its oldest question and "
          "answer are left out from now on");
    }
    if (!done.ok()) {
      request_.mutable_messages()->RemoveLast();
      return done;
    }
    add("assistant", reply_);
    if (finish_ == v1::GenerateResponse::LENGTH) {
      session_.err().line("note: the answer is cut after " + std::to_string(tokens_) +
                          " tokens (--tokens)");
    } else if (finish_ == v1::GenerateResponse::CONTEXT) {
      session_.err().line(
          "note: the answer is cut: the model sees no longer chat; /reset begins "
          "another");
    }
    return {};
  }

 private:
  void add(const std::string& role, const std::string& content) {
    v1::ChatMessage& message = *request_.add_messages();
    message.set_role(role);
    message.set_content(content);
  }
  void drop(int begin, int end) { request_.mutable_messages()->DeleteSubrange(begin, end - begin); }

  /// Ctrl-C stops the answer, and not the program.
  Status ask() {
    reply_.clear();
    tokens_ = 0;
    finish_ = v1::GenerateResponse::FINISH_UNSPECIFIED;
    const bool terminal = session_.out().is_terminal();
    TerminalText shown;
    const std::stop_token stop = session_.interrupted();
    const Status done = server_.generate(request_, stop, [&](const v1::GenerateResponse& piece) {
      reply_ += piece.text();
      tokens_ = piece.token_count();
      finish_ = piece.finish();
      if (session_.machine()) return true;
      return session_.out().write(terminal ? shown.add(piece.text()) : piece.text());
    });
    session_.forget_interrupts();
    if (!done.ok()) {
      if (!session_.machine() && !reply_.empty()) session_.out().write("\n");
      return done;
    }
    if (session_.machine()) {
      const nlohmann::ordered_json object = {
          {"role", "assistant"},
          {"content", reply_},
          {"token_count", std::to_string(tokens_)},
          {"finish", v1::GenerateResponse::Finish_Name(finish_)}};
      session_.out().line(object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    } else {
      session_.out().write((terminal ? shown.rest() : "") + "\n");
    }
    return {};
  }

  Session& session_;
  client::Client& server_;
  v1::GenerateRequest request_;
  int system_count_ = 0;
  std::string reply_;
  int64_t tokens_ = 0;
  v1::GenerateResponse::Finish finish_ = v1::GenerateResponse::FINISH_UNSPECIFIED;
};

Result<int> run_chat(Session& session, const ChatOptions& options) {
  ASSIGN_OR_RETURN(const std::string model, session.full_name("models", options.model));
  v1::GenerateRequest request;
  request.set_name(model);
  if (Status s = set_generate_fields(options.flags, request); !s.ok()) return s.error();
  if (!options.system.empty()) {
    v1::ChatMessage& message = *request.add_messages();
    message.set_role("system");
    message.set_content(options.system);
  }
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  Chat chat(session, *server, std::move(request));
  const bool asks = ::isatty(STDIN_FILENO) == 1 && session.out().is_terminal();
  if (asks)
    session.hint("/reset begins another chat, /quit or Ctrl-D ends, Ctrl-C stops an answer");
  std::string line;
  while (true) {
    if (asks) session.out().write(session.out().styled(Style::kDim, "> "));
    if (!std::getline(std::cin, line)) break;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    if (line == "/quit") return static_cast<int>(client::kExitOk);
    if (line == "/reset") {
      chat.reset();
      continue;
    }
    if (line.starts_with("/") && !line.starts_with("//")) {
      session.err().line("note: " + quoted_value(line) +
                         " is not a command, expected /reset or /quit; begin a message with // "
                         "for one /");
      continue;
    }
    const Status answered = chat.answer(line.starts_with("//") ? line.substr(1) : line);
    if (answered.ok()) continue;
    if (!asks) return answered.error();
    report_error(answered.error(), session.err(), session.format(), session.verbose());
  }
  if (asks) session.out().write("\n");
  return static_cast<int>(client::kExitOk);
}

}  // namespace

Command chat_command() {
  auto o = std::make_shared<ChatOptions>();
  return {"chat",
          "Chat with a language model",
          {"trainyard chat support-1", "trainyard chat smollm2 --system 'Answer in one sentence.'",
           "printf 'What is 2+3?\\nAnd 4+5?\\n' | trainyard chat support-1 --temperature 0"},
          "Each line of standard input is a message, to which the answer is printed while it is "
          "generated; the messages before it are part of the chat. /reset begins another chat, "
          "/quit or the end of the input ends the program, and Ctrl-C stops an answer. The model "
          "needs a template for chats, which models of Hugging Face folders have.",
          [o](OptionSet& options) {
            options.positional("MODEL", o->model,
                               "a model of chats: its name, which is that of its job");
            options.text("--system", "TEXT", o->system,
                         "the first message, which says how to answer");
            add_generate_options(options, o->flags);
          },
          [o](Session& session) { return run_chat(session, *o); }};
}

}  // namespace trainyard::cli
