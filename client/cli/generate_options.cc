#include "client/cli/generate_options.h"

#include <utility>

#include "client/cli/terminal.h"
#include "src/base/text.h"

namespace trainyard::cli {
namespace {

std::string shown_on_terminal(const std::string& text) {
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

}  // namespace

void add_generate_options(OptionSet& options, GenerateFlags& f) {
  options.integer("--tokens", "N", f.tokens,
                  "tokens to add at most, default " + std::to_string(f.tokens));
  options.number("--temperature", "T", f.temperature,
                 "below 1 favors probable tokens, 0 always takes the most probable; default " +
                     short_number(f.temperature));
  options.integer("--top-k", "K", f.top_k, "sample from the K most probable tokens");
  options.number("--top-p", "P", f.top_p,
                 "sample from the fewest tokens whose probabilities sum to P");
  options.number("--min-p", "P", f.min_p,
                 "sample only from tokens at least P times as probable as the most probable");
  options.number("--repetition-penalty", "R", f.repetition_penalty,
                 "above 1 avoids tokens that the text already has");
  options.texts("--stop", "TEXT", f.stop, "end the text before this; may be repeated");
  options.integer("--seed", "N", f.seed, "another seed gives another text; default 0");
}

Status set_generate_fields(const GenerateFlags& flags, v1::GenerateRequest& request) {
  if (flags.seed < 0) return usage_error("--seed: expected 0 or more");
  request.set_token_count(flags.tokens);
  request.set_temperature(flags.temperature);
  request.set_top_k(flags.top_k);
  request.set_top_p(flags.top_p);
  request.set_min_p(flags.min_p);
  request.set_repetition_penalty(flags.repetition_penalty);
  request.set_seed(static_cast<uint64_t>(flags.seed));
  for (const std::string& text : flags.stop) request.add_stop(text);
  return {};
}

std::string TerminalText::add(std::string_view bytes) {
  waiting_ += bytes;
  const size_t bad = find_invalid_utf8(waiting_).value_or(waiting_.size());
  // An incomplete UTF-8 character has at most three bytes; a longer remainder is invalid and shown
  // as it came.
  const size_t ready = waiting_.size() - bad < 4 ? bad : waiting_.size();
  const std::string text = waiting_.substr(0, ready);
  waiting_.erase(0, ready);
  return shown_on_terminal(text);
}

std::string TerminalText::rest() { return shown_on_terminal(std::exchange(waiting_, {})); }

}  // namespace trainyard::cli
