#include "client/cli/preview_documents.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "client/cli/output.h"
#include "client/cli/terminal.h"
#include "client/lib/exit_code.h"
#include "src/data/load/packing.h"

namespace trainyard::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

int64_t count_counted(const std::vector<PreviewedRow::Token>& document) {
  return std::ranges::count(document, true, &PreviewedRow::Token::counts);
}

/// Renders the tokens of a document. A line ends behind a token that ends with a line break.
std::string render_tokens(const std::vector<PreviewedRow::Token>& document, bool colour) {
  std::string out = "  ";
  bool separates = false;  // two tokens without brackets need a mark between them
  for (const PreviewedRow::Token& token : document) {
    std::string text;
    for (const char c : token.text) text += c == '\n' ? std::string("\\n") : std::string(1, c);
    text = safe_text(text);
    if (colour) {
      if (separates) out += paint(true, Style::kDim, "|");
      out += paint(true, token.counts ? Style::kGood : Style::kDim, text);
      separates = true;
    } else {
      if (separates && !token.counts) out += '|';
      out += token.counts ? "[" + text + "]" : text;
      separates = !token.counts;
    }
    if (token.text.ends_with('\n') && &token != &document.back()) {
      out += "\n  ";
      separates = false;
    }
  }
  return out + "\n";
}

OrderedJson json_of(const PreviewedRow& row) {
  OrderedJson documents = OrderedJson::array();
  for (size_t i = 0; i < row.documents.size(); ++i) {
    OrderedJson tokens = OrderedJson::array();
    for (const PreviewedRow::Token& token : row.documents[i]) {
      tokens.push_back({{"id", token.id}, {"text", token.text}, {"counts", token.counts}});
    }
    documents.push_back({{"document", row.numbers[i]}, {"tokens", std::move(tokens)}});
  }
  return {{"documents", std::move(documents)}, {"padding", row.padding}};
}

}  // namespace

PreviewedRow previewed_row(const Dataset& data, int64_t row,
                           const std::vector<std::string>& token_texts) {
  const Partition& train = data.train();
  const auto length = static_cast<size_t>(train.packed->context_length);
  std::vector<int32_t> tokens(length), positions(length), targets(length);
  copy_packed_row(train, row, tokens, positions, targets);
  PreviewedRow shown;
  size_t at = 0;
  for (const int64_t number : train.packed->documents_of(row)) {
    const auto of = static_cast<size_t>(number);
    const size_t end =
        at + std::min(length, static_cast<size_t>(train.starts[of + 1] - train.starts[of]));
    shown.numbers.push_back(number);
    std::vector<PreviewedRow::Token>& document = shown.documents.emplace_back();
    for (const size_t first = at; at < end; ++at) {
      const auto id = static_cast<size_t>(tokens[at]);
      const bool counts = at > first && targets[at - 1] >= 0;
      document.push_back({tokens[at], id < token_texts.size() ? token_texts[id] : "", counts});
    }
  }
  shown.padding = static_cast<int64_t>(length - at);
  return shown;
}

std::string render_row(const PreviewedRow& row, bool colour) {
  std::string out;
  for (size_t i = 0; i < row.documents.size(); ++i) {
    const std::vector<PreviewedRow::Token>& document = row.documents[i];
    const std::string title = "document " + grouped(row.numbers[i] + 1) + ": " +
                              grouped(std::ssize(document)) + " tokens, " +
                              grouped(count_counted(document)) + " count";
    out += paint(colour, Style::kBold, title) + "\n" + render_tokens(document, colour);
  }
  if (row.padding > 0) {
    out += paint(colour, Style::kDim, grouped(row.padding) + " places of padding") + "\n";
  }
  return out;
}

Result<int> preview_documents(Session& session, Dataset& data, const Recipe& recipe, int64_t rows) {
  const DatasetSchema& schema = data.schema();
  const int64_t context =
      recipe.context_length > 0 ? recipe.context_length : default_context_length(*schema.documents);
  const Split split = split_documents(schema, data.train(), context, recipe.split_rule());
  data.pack(split.packed, nullptr);
  const std::vector<std::string> texts = token_texts(schema.text);
  OrderedJson all = OrderedJson::array();
  for (size_t i = 0; i < std::min(split.train.size(), static_cast<size_t>(rows)); ++i) {
    const PreviewedRow row = previewed_row(data, split.train[i], texts);
    if (session.machine()) {
      all.push_back(json_of(row));
      continue;
    }
    const bool colour = session.out().colour();
    const std::string title = "row " + grouped(static_cast<int64_t>(i) + 1) + " of " +
                              grouped(std::ssize(split.train)) + ", " + grouped(context) +
                              " places";
    session.out().write((i > 0 ? "\n" : "") + paint(colour, Style::kBold, title) + "\n\n" +
                        render_row(row, colour));
  }
  if (session.machine()) {
    session.out().line(OrderedJson({{"rows", std::move(all)}})
                           .dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
    return static_cast<int>(client::kExitOk);
  }
  session.hint(session.out().colour() ? "  green: tokens that the model learns to write"
                                      : "  in [brackets]: tokens that the model learns to write");
  return static_cast<int>(client::kExitOk);
}

}  // namespace trainyard::cli
