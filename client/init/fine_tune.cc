#include "client/init/fine_tune.h"

#include <algorithm>
#include <array>
#include <bit>
#include <nlohmann/json.hpp>
#include <set>

#include "client/init/draft_parts.h"
#include "client/init/table_head.h"
#include "src/base/files.h"
#include "src/base/text.h"
#include "src/data/documents/documents_dataset.h"
#include "src/data/files/byte_source.h"
#include "src/data/tokenizers/pretrained_tokenizer.h"

namespace trainyard::init {
namespace {

using Json = nlohmann::json;

constexpr double kBytesPerToken = 3;  // on the safe side for most languages
constexpr const char* kLabel = "label";
constexpr int64_t kContextMin = 128, kContextMax = 1024;
constexpr int64_t kBatchMax = 8, kEpochs = 3, kStepsPerEpoch = 24;

struct DocumentKind {
  std::string_view member, other;  // members that a document of the kind has
  std::string_view noun;           // of one document
};
constexpr std::array<DocumentKind, 3> kKinds = {{{"messages", "", "chat"},
                                                 {"prompt", "completion", "prompt with completion"},
                                                 {"text", "", "text"}}};

/// The documents of a file; lengths in bytes, or in tokens once they are counted.
struct Lengths {
  std::array<int64_t, kKinds.size()> of_kind = {};
  int64_t count = 0, all = 0, longest = 0;
  int64_t labels = 0;              // documents that are a text with a label
  std::set<std::string> classes;   // the first different labels
  std::vector<std::string> texts;  // those with a label

  bool has_labels() const { return labels == count; }
};

/// Adds the label of a text. With too many different labels for a class each, they are not
/// remembered.
void add_label(const Json& line, Lengths& lengths) {
  constexpr size_t kClassesCounted = 10000;
  const auto label = line.find(kLabel);
  if (label == line.end() || !label->is_primitive() || label->is_null()) return;
  ++lengths.labels;
  if (lengths.classes.size() < kClassesCounted) lengths.classes.insert(label->dump());
  lengths.texts.push_back(line.at("text").get<std::string>());
}

/// Returns the number of bytes of all texts in a value.
int64_t text_bytes(const Json& value) {
  if (value.is_string()) return std::ssize(value.get_ref<const std::string&>());
  int64_t bytes = 0;
  if (value.is_structured()) {
    for (const Json& item : value) bytes += text_bytes(item);
  }
  return bytes;
}

Status add_line(std::string_view line, int64_t number, Lengths& lengths) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  const auto kind = std::ranges::find_if(kKinds, [&](const DocumentKind& k) {
    return json.is_object() && json.contains(k.member) &&
           (k.other.empty() || json.contains(k.other));
  });
  if (kind == kKinds.end()) {
    return unsupported("line " + std::to_string(number) + " is " +
                       (json.is_object() ? "an object" : "no JSON object") +
                       ", expected one with `messages` (a list of {role, content}), with `prompt` "
                       "and `completion`, or with `text`");
  }
  const int64_t bytes = text_bytes(json);
  ++lengths.of_kind[static_cast<size_t>(kind - kKinds.begin())];
  ++lengths.count;
  if (kind->member == "text" && json.at("text").is_string()) add_label(json, lengths);
  lengths.all += bytes;
  lengths.longest = std::max(lengths.longest, bytes);
  return {};
}

/// Adds the documents of all whole lines of `text`.
Status add_lines(std::string_view text, Lengths& lengths) {
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    if (Status s = add_line(line, number, lengths); !s.ok()) return s;
  }
  return {};
}

/// Counts the tokens of texts that are classified.
Status count_text_tokens(const TokenizerFiles& files, Lengths& lengths) {
  ASSIGN_OR_RETURN(const PretrainedTokenizer tokenizer, PretrainedTokenizer::read(files));
  const auto around = std::ssize(tokenizer.prefix()) + std::ssize(tokenizer.suffix());
  lengths.all = lengths.longest = 0;
  std::vector<int32_t> tokens;
  for (const std::string& text : lengths.texts) {
    tokens.clear();
    tokenizer.encode(text, true, tokens);
    const int64_t length = std::ssize(tokens) + around;
    lengths.all += length;
    lengths.longest = std::max(lengths.longest, length);
  }
  return {};
}

/// Counts the tokens of documents as the dataset's reader does.
Status count_document_tokens(const TokenizerFiles& files, const std::string& lines,
                             const std::filesystem::path& scratch, Lengths& lengths,
                             FineTuneDraft& draft) {
  const std::filesystem::path copy = scratch / "documents.jsonl";
  if (Status s = replace_file(local_files(), copy, lines); !s.ok()) return s;
  DocumentsOptions options;
  ASSIGN_OR_RETURN(const PretrainedTokenizer tokenizer, PretrainedTokenizer::read(files));
  options.end_token = draft.has_end_token = tokenizer.end_token() >= 0;
  ASSIGN_OR_RETURN(const TypedDataset dataset, read_documents_dataset(options, files, copy, {}));
  lengths.all = dataset.schema.documents->train.tokens();
  lengths.longest = dataset.schema.documents->train.longest();
  return {};
}

int64_t tokens_of(int64_t bytes) {
  return static_cast<int64_t>(static_cast<double>(bytes) / kBytesPerToken) + 1;
}

std::string found_text(const Lengths& lengths, bool is_part) {
  std::string text = is_part ? "at least " : "";
  bool first = true;
  for (size_t i = 0; i < kKinds.size(); ++i) {
    const int64_t count = lengths.of_kind[i];
    if (count == 0) continue;
    const bool completion = kKinds[i].other == "completion";
    text +=
        (first ? "" : ", ") + (completion ? grouped(count) + (count == 1 ? " prompt" : " prompts") +
                                                " with completion" + (count == 1 ? "" : "s")
                                          : count_of(count, std::string(kKinds[i].noun)));
    first = false;
  }
  return text;
}

}  // namespace

Result<FineTuneDraft> draft_fine_tune(const std::filesystem::path& data, const FineTuneModel& model,
                                      const std::filesystem::path& scratch) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source, open_file_source(data, data.string()));
  std::string text(static_cast<size_t>(std::min(source->bytes_max(), kHeadBytesMax)), '\0');
  ASSIGN_OR_RETURN(const size_t size, read_full(*source, text));
  text.resize(size);
  char more = 0;
  ASSIGN_OR_RETURN(const size_t after, source->read({&more, 1}));
  if (after > 0) text.resize(text.rfind('\n') == text.npos ? text.size() : text.rfind('\n') + 1);
  Lengths lengths;
  if (Status s = add_lines(text, lengths); !s.ok()) return std::move(s).error();
  if (lengths.count == 0) return unsupported("the file has no documents");
  FineTuneDraft draft;
  if (model.tokenizer.empty()) {
    lengths.all = tokens_of(lengths.all);
    lengths.longest = tokens_of(lengths.longest);
  } else {
    const Status counted = lengths.has_labels() ? count_text_tokens(model.tokenizer, lengths)
                                                : count_document_tokens(model.tokenizer, text,
                                                                        scratch, lengths, draft);
    if (!counted.ok()) return counted.error();
  }

  draft.is_part = after > 0;
  draft.documents = lengths.count;
  draft.found = found_text(lengths, draft.is_part);
  draft.has_labels = lengths.has_labels();
  if (draft.has_labels) {
    draft.classes = std::ssize(lengths.classes);
    draft.found += " of " + grouped(draft.classes) + (draft.classes == 1 ? " class" : " classes");
  }
  const auto wanted = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(lengths.longest)));
  draft.context_length = std::min(std::clamp(wanted, kContextMin, kContextMax),
                                  std::max<int64_t>(model.positions_max, 1));
  const int64_t rows = draft.has_labels ? lengths.count : lengths.all / draft.context_length + 1;
  draft.batch_size =
      draft.is_part ? kBatchMax : std::clamp<int64_t>(rows / kStepsPerEpoch, 1, kBatchMax);
  draft.epochs = draft.is_part ? 1 : kEpochs;
  const int64_t steps = draft.epochs * std::max<int64_t>(rows / draft.batch_size, 1);
  draft.warmup_steps = std::max<int64_t>(steps / 20, 1);
  return draft;
}

namespace {

std::string dataset_yaml(const FineTuneDraft& draft) {
  if (!draft.has_labels) {
    const std::string options = draft.has_end_token ? "{}                 " : "{end_token: false}";
    return "\n  documents: " + options +
           "    # by the model's tokenizer; only answers count in "
           "the loss\n";
  }
  return "\n  jsonl:                            # read by the model's tokenizer\n    target: " +
         std::string(kLabel) + "\n    target_kind: class\n    text: [text]\n    max_length: " +
         std::to_string(draft.context_length) +
         "                 # tokens of a row; longer texts are cut, shorter ones padded\n";
}

std::string rows_yaml(const FineTuneDraft& draft) {
  const std::string batch = "\n  batch_size: " + std::to_string(draft.batch_size);
  if (draft.has_labels) return batch + "\n";
  return batch + "                     # rows of context_length tokens\n  context_length: " +
         std::to_string(draft.context_length) +
         "               # short documents share a row, longer ones are cut: 'plan' says how "
         "many\n";
}

}  // namespace

std::string fine_tune_yaml(const FineTuneDraft& draft, const FineTuneNames& names) {
  const std::string file = names.file.string();
  const auto in_file = [&](const std::filesystem::path& path) {
    return yaml_text(path_in(path, names.file));
  };
  std::string text =
      "# Written by 'trainyard init " + comment_text(names.data.string()) + " --model " +
      comment_text(names.model.string()) + "', which found " + draft.found + ".\n" +
      "# It is a first guess for you to change: docs/job_spec.md describes every field.\n#\n" +
      "#   trainyard plan " + comment_text(file) +
      "              # memory, steps and time, before anything starts\n" + "#   trainyard submit " +
      comment_text(file) + " --watch    # trains it on the server\n" + "#   trainyard local run " +
      comment_text(file) + "         # trains it here, without a server\n";
  text += "\nname: " + yaml_text(names.name) + "\n";
  text += "\ndataset:\n  name: " + yaml_text(names.dataset) + "\n  path: " + in_file(names.data) +
          dataset_yaml(draft);
  text += "\nmodel:\n  # " + names.model_words + "\n  pretrained: " + in_file(names.model) + "\n";
  text += "\nrecipe:\n  epochs: " + std::to_string(draft.epochs) + rows_yaml(draft) +
          "  lora: {rank: 16, alpha: 32, targets: [all-linear]}\n"
          "  optimizer: {type: adamw, learning_rate: 0.0002}\n"
          "  schedule: {type: cosine, warmup_steps: " +
          std::to_string(draft.warmup_steps) +
          "}\n  clip_gradients: {norm: 1}\n"
          "  validation_split: 0.1             # this share of the documents measures the model\n"
          "  seed: 0\n";
  return text;
}

}  // namespace trainyard::init
