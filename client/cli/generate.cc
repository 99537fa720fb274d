// trainyard generate: continues texts with a language model, and prints the text as it is
// generated.
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "client/cli/command.h"
#include "client/cli/generate_options.h"

namespace trainyard::cli {
namespace {

struct GenerateOptions {
  std::string model;
  std::vector<std::string> prompts;
  bool ignore_end = false;
  GenerateFlags flags;
};

Result<v1::GenerateRequest> make_request(const GenerateOptions& options, const std::string& model) {
  v1::GenerateRequest request;
  request.set_name(model);
  std::vector<std::string> prompts = options.prompts;
  if (prompts.empty()) prompts.emplace_back("\n");
  for (std::string& prompt : prompts) {
    if (prompt == "-") prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
  }
  if (prompts.size() == 1) {
    request.set_prompt(prompts[0]);
  } else {
    for (const std::string& prompt : prompts) request.add_prompts(prompt);
  }
  request.set_ignore_end(options.ignore_end);
  if (Status s = set_generate_fields(options.flags, request); !s.ok()) return s.error();
  return request;
}

std::string finish_name(v1::GenerateResponse::Finish finish) {
  return v1::GenerateResponse::Finish_Name(finish);
}

/// The text of one prompt so far.
struct GeneratedText {
  std::string text;
  int64_t tokens = 0;
  v1::GenerateResponse::Finish finish = v1::GenerateResponse::FINISH_UNSPECIFIED;

  void add(const v1::GenerateResponse& piece) {
    text += piece.text();
    tokens = piece.token_count();
    finish = piece.finish();
  }
  nlohmann::ordered_json to_json() const {
    nlohmann::ordered_json object = {{"text", text}, {"token_count", std::to_string(tokens)}};
    if (finish != v1::GenerateResponse::FINISH_UNSPECIFIED) object["finish"] = finish_name(finish);
    return object;
  }
};

void print_json(Session& session, const nlohmann::ordered_json& object) {
  session.out().line(object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

Result<int> run_generate(Session& session, const GenerateOptions& options) {
  ASSIGN_OR_RETURN(const std::string model, session.full_name("models", options.model));
  ASSIGN_OR_RETURN(const v1::GenerateRequest request, make_request(options, model));
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  const std::stop_token stop = session.interrupted();
  const bool lines = session.format() == Format::kJsonl;
  const bool several = request.prompts_size() > 1;
  const bool streams = !session.machine() && !several;
  const bool terminal = session.out().is_terminal();
  TerminalText shown;
  std::vector<GeneratedText> texts(static_cast<size_t>(several ? request.prompts_size() : 1));
  if (terminal && streams) {
    session.out().write(
        paint(session.out().colour(), Style::kDim, shown.add(request.prompt()) + shown.rest()));
  }
  bool printed = false;
  const Status done = server->generate(request, stop, [&](const v1::GenerateResponse& piece) {
    if (lines) return session.out().line(to_json(piece, false));
    const auto index = static_cast<size_t>(piece.index());
    if (index < texts.size()) texts[index].add(piece);
    if (!streams) return true;
    printed = true;
    return session.out().write(terminal ? shown.add(piece.text()) : piece.text());
  });
  // nothing was printed if the call was refused
  if (streams && (done.ok() || printed)) {
    session.out().write((terminal ? shown.rest() : "") + "\n");
  }
  if (!done.ok()) return done.error();
  if (!streams && !lines) {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const GeneratedText& text : texts) {
      all.push_back(text.to_json());
      if (session.machine()) continue;
      TerminalText safe;
      session.out().write((terminal ? safe.add(text.text) + safe.rest() : text.text) + "\n");
    }
    if (session.machine()) print_json(session, several ? all : all[0]);
  }
  if (streams && texts[0].finish == v1::GenerateResponse::CONTEXT) {
    session.hint("the model sees no longer text than this");
  }
  return static_cast<int>(stop.stop_requested() ? client::kExitInterrupted : client::kExitOk);
}

}  // namespace

Command generate_command() {
  auto o = std::make_shared<GenerateOptions>();
  return {"generate",
          "Continue a text with a language model",
          {"trainyard generate shakespeare-1 --prompt 'ROMEO:' --tokens 500",
           "trainyard generate shakespeare-1 --temperature 0.8 --top-k 40 --seed 7",
           "trainyard generate shakespeare-1 --prompt 'ROMEO:' --prompt 'JULIET:' --stop '\\n\\n'"},
          "Prints the text while it is generated; the same options give the same text. Several "
          "prompts are continued together and printed at the end, one after the other. Ctrl-C "
          "stops it.",
          [o](OptionSet& options) {
            options.positional("MODEL", o->model, "a language model's name, which is its job's");
            options.texts("--prompt", "TEXT", o->prompts,
                          "the text to continue, default a newline; - is standard input; may be "
                          "repeated");
            add_generate_options(options, o->flags);
            options.flag("--ignore-end", o->ignore_end,
                         "go on behind the token with which the model ends a text");
          },
          [o](Session& session) { return run_generate(session, *o); }};
}

}  // namespace trainyard::cli
