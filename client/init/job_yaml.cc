#include "client/init/job_yaml.h"

#include <algorithm>

#include "client/init/draft_parts.h"
#include "src/base/text.h"

namespace trainyard::init {
namespace {

namespace fs = std::filesystem;
using Use = ColumnNote::Use;

constexpr size_t kWidth = 110;  // maximum width of a line; a longer comment is put above its line
constexpr size_t kCommentColumn = 36;
constexpr size_t kColumnsListed = 40;
constexpr size_t kReasonsMax = 200;

class Writer {
 public:
  void blank() { text_ += "\n"; }
  /// Writes a comment, wrapped at spaces to kWidth columns.
  void comment(size_t indent, std::string_view words) {
    const std::string begin = std::string(indent, ' ') + "#";
    const std::string text = comment_text(words);
    std::string_view rest = text;
    do {
      size_t end = rest.size();
      if (begin.size() + 1 + end > kWidth) {
        const size_t blank = rest.rfind(' ', kWidth - begin.size() - 1);
        if (blank != rest.npos && blank > rest.find_first_not_of(' ')) end = blank;
      }
      text_ += begin + (rest.empty() ? "" : " ") + std::string(rest.substr(0, end)) + "\n";
      rest.remove_prefix(std::min(rest.size(), end + 1));
    } while (!rest.empty());
  }
  /// Writes a field with its comment after it, or above it if the line would be too long.
  void line(size_t indent, const std::string& field, std::string_view words = "") {
    const std::string whole = std::string(indent, ' ') + field;
    if (words.empty()) {
      text_ += whole + "\n";
      return;
    }
    const std::string says = "# " + comment_text(words);
    const size_t column = std::max(kCommentColumn, whole.size() + 2);
    if (column + says.size() > kWidth) {
      comment(indent, words);
      text_ += whole + "\n";
    } else {
      text_ += whole + std::string(column - whole.size(), ' ') + says + "\n";
    }
  }
  std::string take() && { return std::move(text_); }

 private:
  std::string text_;
};

void write_head(const JobDraft& draft, const JobYamlOptions& o, Writer& out) {
  const std::string file = o.file.string();
  out.comment(
      0, "Written by 'trainyard init " + o.data.string() + "', which found " + draft.found + ".");
  out.comment(0, "It is a first guess for you to change: docs/job_spec.md describes every field.");
  out.comment(0, "");
  out.comment(0, "  trainyard submit " + file + " --watch    # trains it on the server");
  out.comment(0, "  trainyard local run " + file + "         # trains it here, without a server");
  for (const std::string& note : draft.notes) {
    out.comment(0, "");
    out.comment(0, "Note: " + note);
  }
  out.blank();
  out.line(0, "name: " + yaml_text(o.name), "each job has its own: 'submit --name' gives another");
}

void write_columns(const JobDraft& draft, size_t indent, Writer& out) {
  size_t width = 0, shown = 0;
  int64_t learned = 0;
  for (const ColumnNote& c : draft.columns) {
    if (c.use != Use::kLearnedFrom) continue;
    ++learned;
    if (c.name.size() <= 40) width = std::max(width, c.name.size());
  }
  if (learned == 0) return;
  out.comment(indent, "Learns from " + count_of(learned, "column") + ":");
  for (const ColumnNote& c : draft.columns) {
    if (c.use != Use::kLearnedFrom) continue;
    if (shown++ == kColumnsListed) {
      out.comment(indent,
                  "  ... and " + grouped(learned - static_cast<int64_t>(shown) + 1) + " more");
      break;
    }
    const size_t gap = width > c.name.size() ? width - c.name.size() : 0;
    out.comment(indent, "  " + c.name + std::string(gap + 2, ' ') + c.says);
  }
}

void write_dataset(const JobDraft& draft, const JobYamlOptions& o, Writer& out) {
  out.blank();
  out.line(0, "dataset:");
  out.line(2, "name: " + yaml_text(o.dataset),
           "changed data becomes the next version of this name");
  for (const DraftSource& source : draft.sources) {
    out.line(2, source.field + ": " + yaml_text(path_in(source.path, o.file)));
  }
  if (draft.format.empty()) return;
  const bool plain = draft.fields.empty() && draft.columns.empty();
  out.line(2, draft.format + (plain ? ": {}" : ":"));
  for (const DraftField& field : draft.fields) {
    if (field.name == "target" && !draft.target_why.empty()) out.comment(4, choice_text(draft));
    if (field.items.empty()) {
      out.line(4, field.name + ": " + field.value, field.says);
      continue;
    }
    out.line(4, field.name + ":", field.says);
    // A spec may have at most 1 MiB, so with thousands of columns only the first get their reasons.
    const size_t explained =
        field.items.size() <= kReasonsMax ? field.items.size() : kReasonsMax / 2;
    for (size_t i = 0; i < field.items.size(); ++i) {
      out.line(6, "- " + yaml_text(field.items[i].name), i < explained ? field.items[i].says : "");
    }
  }
  write_columns(draft, 4, out);
}

void write_recipe(const FirstGuess& g, Writer& out) {
  out.blank();
  out.line(0, "recipe:");
  if (g.epochs > 0) {
    out.line(2, "epochs: " + std::to_string(g.epochs),
             "at most: early_stopping may end the job sooner");
  } else {
    out.line(2, "steps: " + std::to_string(g.steps),
             "batches, at most: early_stopping may end the job sooner");
  }
  out.line(2, "batch_size: " + std::to_string(g.batch_size));
  if (!g.drop_last) {
    out.line(2, "drop_last: false",
             "each epoch has every row: its first rows complete the last batch");
  }
  if (g.context_length > 0) {
    out.line(2, "context_length: " + std::to_string(g.context_length),
             "tokens that the model sees at a time");
  }
  out.line(2, "optimizer: {type: adamw, learning_rate: " + short_number(g.learning_rate) +
                  ", weight_decay: " + short_number(g.weight_decay) +
                  (g.decays_matrices ? ", weight_decay_on: matrices}" : "}"));
  out.line(2, "schedule: {type: cosine" +
                  (g.warmup_steps > 0 ? ", warmup_steps: " + std::to_string(g.warmup_steps) + "}"
                                      : "}"));
  if (g.ema_decay > 0) {
    out.line(2, "ema: {decay: " + short_number(g.ema_decay) + "}",
             "the model gets a moving average of the weights");
  }
  if (g.clip_norm > 0) out.line(2, "clip_gradients: {norm: " + short_number(g.clip_norm) + "}");
  if (!g.augmentation.empty()) {
    out.line(2, "augmentation:", "'trainyard dataset preview' shows the resulting images");
    for (const std::string& entry : g.augmentation) out.line(4, "- " + entry);
  }
  out.line(2, "validation_split: " + short_number(g.validation_split),
           "this share is held out to measure the model");
  if (g.evaluate_every_steps > 0) {
    out.line(2, "evaluate_every_steps: " + std::to_string(g.evaluate_every_steps));
  }
  out.line(2, "keep_best: {metric: " + g.metric + "}",
           "the model gets the weights of the best evaluation");
  out.line(
      2, "early_stopping: {metric: " + g.metric + ", patience: " + std::to_string(g.patience) + "}",
      "stops after this many evaluations without a better one");
  out.line(2, "seed: 0", "another seed gives other initial weights and another split");
}

}  // namespace

std::string job_yaml(const JobDraft& draft, const JobYamlOptions& options) {
  Writer out;
  write_head(draft, options, out);
  write_dataset(draft, options, out);
  out.blank();
  out.line(0, "model:");
  out.line(2, draft.guess.model, draft.guess.model_words);
  write_recipe(draft.guess, out);
  return std::move(out).take();
}

}  // namespace trainyard::init
