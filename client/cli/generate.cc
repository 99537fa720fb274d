// trainyard generate: continues a text with a language model, and prints the text as it is
// generated.
#include <cmath>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "client/cli/command.h"
#include "src/base/text.h"

namespace trainyard::cli {
namespace {

struct GenerateOptions {
  std::string model;
  std::string prompt = "\n";
  int64_t tokens = 256;
  double temperature = 1;
  int64_t top_k = 0;
  double top_p = 1;
  int64_t seed = 0;
};

/// Escapes a model's output for a terminal, which must not interpret it: control bytes are escaped,
/// newlines and tabs stay. Bytes of an incomplete character are kept until the rest arrives.
class TerminalText {
 public:
  std::string add(std::string_view bytes) {
    waiting_ += bytes;
    const size_t bad = find_invalid_utf8(waiting_).value_or(waiting_.size());
    // An incomplete UTF-8 character has at most three bytes; a longer remainder is invalid and
    // shown as it came.
    const size_t ready = waiting_.size() - bad < 4 ? bad : waiting_.size();
    const std::string text = waiting_.substr(0, ready);
    waiting_.erase(0, ready);
    return shown(text);
  }
  std::string rest() { return shown(std::exchange(waiting_, {})); }

 private:
  static std::string shown(const std::string& text) {
    std::string out;
    size_t begin = 0;
    for (size_t i = 0; i <= text.size(); ++i) {
      if (i < text.size() && text[i] != '\n' && text[i] != '\t') continue;
      out += safe_text(std::string_view(text).substr(begin, i - begin));
      if (i < text.size()) out += text[i];
      begin = i + 1;
    }
    return out;
  }
  std::string waiting_;
};

Result<v1::GenerateRequest> make_request(const GenerateOptions& options, const std::string& model) {
  v1::GenerateRequest request;
  request.set_name(model);
  std::string prompt = options.prompt;
  if (prompt == "-") prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
  request.set_prompt(prompt);
  request.set_token_count(options.tokens);
  request.set_temperature(options.temperature);
  request.set_top_k(options.top_k);
  request.set_top_p(options.top_p);
  if (options.seed < 0) {
    return usage_error("--seed: expected 0 or more");
  }
  request.set_seed(static_cast<uint64_t>(options.seed));
  return request;
}

Result<int> run_generate(Session& session, const GenerateOptions& options) {
  ASSIGN_OR_RETURN(const std::string model, client::full_name("models", options.model));
  ASSIGN_OR_RETURN(const v1::GenerateRequest request, make_request(options, model));
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  const std::stop_token stop = session.interrupted();
  const bool lines = session.format() == Format::kJsonl;
  const bool whole = session.machine() && !lines;
  const bool terminal = session.out().is_terminal();
  TerminalText shown;
  std::string text;
  int64_t count = 0;
  if (terminal && !session.machine()) {
    session.out().write(
        paint(session.out().colour(), Style::kDim, shown.add(request.prompt()) + shown.rest()));
  }
  const Status done = server->generate(request, stop, [&](const v1::GenerateResponse& piece) {
    count = piece.token_count();
    if (lines) return session.out().line(to_json(piece, false));
    if (whole) {
      text += piece.text();
      return true;
    }
    return session.out().write(terminal ? shown.add(piece.text()) : piece.text());
  });
  // nothing was printed if the call was refused
  if (!session.machine() && (done.ok() || count > 0)) {
    session.out().write((terminal ? shown.rest() : "") + "\n");
  }
  if (!done.ok()) return done.error();
  if (whole) {
    const nlohmann::ordered_json object = {{"text", text}, {"token_count", std::to_string(count)}};
    session.out().line(object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  return static_cast<int>(stop.stop_requested() ? client::kExitInterrupted : client::kExitOk);
}

}  // namespace

Command generate_command() {
  auto o = std::make_shared<GenerateOptions>();
  return {"generate",
          "Continue a text with a language model",
          {"trainyard generate shakespeare-1 --prompt 'ROMEO:' --tokens 500",
           "trainyard generate shakespeare-1 --temperature 0.8 --top-k 40 --seed 7"},
          "Prints the text while it is generated; the same options give the same text. Ctrl-C "
          "stops it.",
          [o](OptionSet& options) {
            options.positional("MODEL", o->model, "a language model's name, which is its job's");
            options.text("--prompt", "TEXT", o->prompt,
                         "the text to continue, default a newline; - is standard input");
            options.integer("--tokens", "N", o->tokens, "tokens to add, default 256");
            options.number(
                "--temperature", "T", o->temperature,
                "below 1 favors probable tokens, 0 always takes the most probable; default 1");
            options.integer("--top-k", "K", o->top_k, "sample from the K most probable tokens");
            options.number("--top-p", "P", o->top_p,
                           "sample from the fewest tokens whose probabilities sum to P");
            options.integer("--seed", "N", o->seed, "another seed gives another text; default 0");
          },
          [o](Session& session) { return run_generate(session, *o); }};
}

}  // namespace trainyard::cli
