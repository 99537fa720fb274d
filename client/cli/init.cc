// trainyard init: inspects data and writes a draft of a job file for it.
#include <algorithm>
#include <filesystem>
#include <memory>

#include "client/cli/command.h"
#include "client/cli/gguf_model.h"
#include "client/cli/output_file.h"
#include "client/cli/output_json.h"
#include "client/cli/temporary_folder.h"
#include "client/init/fine_tune.h"
#include "client/init/job_draft.h"
#include "client/init/job_yaml.h"
#include "client/lib/spec_file.h"
#include "src/base/files.h"
#include "src/base/join.h"
#include "src/base/resource_id.h"
#include "src/base/text.h"
#include "src/pretrained/pretrained_folder.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;
using init::ColumnNote;
using init::JobDraft;

struct InitOptions {
  std::string data, model;
  std::string target, out, name;
  bool overwrite = false;
};

/// Returns the default name of the job file: "iris.yaml" for iris.csv.gz, "photos.yaml" for
/// photos/.
fs::path default_file(const fs::path& data) {
  const fs::path whole = fs::absolute(data).lexically_normal();
  fs::path name = whole.has_filename() ? whole.filename() : whole.parent_path().filename();
  std::error_code ec;
  if (!fs::is_directory(data, ec)) {
    for (const char* compressed : {".gz", ".xz", ".zst"}) {
      if (name.extension() == compressed) name = name.stem();
    }
    if (!name.stem().empty()) name = name.stem();
  }
  return name.string() + ".yaml";
}

/// Returns the name that the job or the dataset gets from a file: "iris" for iris.yaml, "data-2024"
/// for 2024.yaml.
std::string name_of(const fs::path& file) {
  const std::string stem = file.stem().string();
  // An array of the job, as `submit --grid` makes it, may have the name too.
  const std::string name = resource_id_of(stem, kArrayIdCharsMax);
  return name.empty() ? resource_id_of("data-" + stem, kArrayIdCharsMax) : name;
}

std::string draft_name(const InitOptions& o, const fs::path& file) {
  return o.name.empty() ? name_of(file) : o.name;
}

nlohmann::ordered_json json_of_draft(const JobDraft& draft, const fs::path& file) {
  nlohmann::ordered_json columns = nlohmann::ordered_json::array();
  for (const ColumnNote& c : draft.columns) {
    const char* use = c.use == ColumnNote::Use::kTarget    ? "target"
                      : c.use == ColumnNote::Use::kLeftOut ? "left_out"
                                                           : "learned_from";
    columns.push_back({{"name", c.name}, {"use", use}, {"says", c.says}});
  }
  nlohmann::ordered_json json = {{"file", file.string()},
                                 {"found", draft.found},
                                 {"format", draft.format},
                                 {"rows", draft.facts.rows},
                                 {"columns", std::move(columns)}};
  if (!draft.target.empty()) json["target"] = draft.target;
  json["target_says"] = draft.target_says;
  if (!draft.target_why.empty()) {
    json["target_why"] = draft.target_why;
    json["target_certainty"] = draft.target_certainty;
    json["target_others"] = draft.target_others;
  }
  json["model"] = draft.guess.model;
  json["notes"] = draft.notes;
  return json;
}

/// Returns one line for each of the first columns that are left out, and one with the number of the
/// others.
std::vector<std::string> left_out_lines(const JobDraft& draft) {
  constexpr size_t kShownMax = 8;
  std::vector<std::string> lines;
  size_t more = 0;
  for (const ColumnNote& c : draft.columns) {
    if (c.use != ColumnNote::Use::kLeftOut) continue;
    if (lines.size() == kShownMax) {
      ++more;
    } else {
      lines.push_back(c.name + ": " + c.says);
    }
  }
  if (more > 0) lines.push_back("and " + std::to_string(more) + " more; the file names them");
  return lines;
}

std::string learned_from(const JobDraft& draft) {
  constexpr size_t kShownMax = 8;
  std::vector<std::string> names;
  size_t all = 0;
  for (const ColumnNote& c : draft.columns) {
    if (c.use != ColumnNote::Use::kLearnedFrom) continue;
    if (++all <= kShownMax) names.push_back(c.name);
  }
  if (all == 0) return "";
  return grouped(static_cast<int64_t>(all)) + (all == 1 ? " column: " : " columns: ") +
         joined(names, ", ") + (all > names.size() ? ", ..." : "");
}

/// Returns the line about `local run`, if the engine's program is here.
std::string local_run_line(const Session& session, const std::string& file) {
  if (!session.has_local()) return "";
  return "\n  trainyard local run " + file + "         train it here, without a server";
}

void show_draft(Session& session, const JobDraft& draft, const InitOptions& o,
                const fs::path& file) {
  Terminal& out = session.out();
  out.line(safe_text(o.data + ": " + draft.found));
  std::string target = draft.target.empty() ? "" : draft.target + ", ";
  target += draft.target_says;
  if (!draft.target_why.empty()) {
    target += "; " + init::choice_text(draft) + "; --target chooses another";
  }
  std::vector<std::pair<std::string, Cell>> fields = {{"predicts", target},
                                                      {"learns from", learned_from(draft)}};
  for (std::string& line : left_out_lines(draft)) {
    fields.emplace_back("leaves out", std::move(line));
  }
  fields.emplace_back("model", draft.guess.model_words);
  for (const std::string& note : draft.notes) fields.emplace_back("note", note);
  fields.emplace_back("job file", file.string());
  out.write(render_fields(fields, out.colour(), out.line_width()));
  const std::string shown = safe_text(file.string());
  out.line("\nNext:\n  trainyard submit " + shown + " --watch    train it on the server" +
           local_run_line(session, shown));
}

/// Parses the text first, which makes sure that the written file can be read again.
Status write_job_file(const fs::path& file, const std::string& text) {
  const auto spec = client::parse_spec_file(text, file.string(), file.parent_path(), {});
  if (!spec.ok()) return spec.error();
  return replace_file(user_files(), file, text);
}

/// Returns the files of the folder's tokenizer; none if it has no vocabulary.
Result<TokenizerFiles> find_tokenizer_files(const fs::path& folder) {
  ASSIGN_OR_RETURN(TokenizerFiles files, read_tokenizer_files(folder));
  for (const char* name : {"tokenizer.json", "tokenizer.model", "tekken.json"}) {
    if (files.contains(name)) return files;
  }
  return TokenizerFiles();
}

/// Drafts a job that fine-tunes the language model of --model.
Result<int> run_fine_tune(Session& session, const InitOptions& o, const fs::path& file) {
  if (!o.target.empty()) return usage_error("--target and --model exclude each other");
  TemporaryFolder scratch;
  ASSIGN_OR_RETURN(const ModelFolder folder,
                   model_folder(o.model, scratch, GgufParts::kDescription));
  ASSIGN_OR_RETURN(const PretrainedFolder model, read_pretrained_folder(folder.path));
  ASSIGN_OR_RETURN(TokenizerFiles tokenizer, find_tokenizer_files(folder.path));
  ASSIGN_OR_RETURN(const init::FineTuneDraft draft,
                   init::draft_fine_tune(o.data, {model.model.positions_max, std::move(tokenizer)},
                                         scratch.path()));
  const std::string words =
      model.model.title + ", " + grouped(model.model.parameter_count()) + " parameters";
  const std::string text = init::fine_tune_yaml(
      draft, {o.data, o.model, file, draft_name(o, file), name_of(default_file(o.data)), words});
  if (Status s = write_job_file(file, text); !s.ok()) return std::move(s).error();
  if (session.format() == Format::kName) {
    session.out().line(file.string());
  } else if (session.machine()) {
    const nlohmann::ordered_json json = {{"file", file.string()},
                                         {"found", draft.found},
                                         {"format", draft.has_labels ? "jsonl" : "documents"},
                                         {"rows", draft.documents},
                                         {"model", model.model.network.preset},
                                         {"context_length", draft.context_length},
                                         {"notes", model.model.notes}};
    session.out().line(text_of(json, session.format()));
  } else {
    Terminal& out = session.out();
    out.line(safe_text(o.data + ": " + draft.found));
    std::vector<std::pair<std::string, Cell>> fields = {
        {"model", words + ", trained by low-rank additions (lora)"},
        {"learns", draft.has_labels ? "the class of a text: the member 'label'"
                                    : "the answers: the assistant's messages, completions, texts"}};
    for (const std::string& note : model.model.notes) fields.emplace_back("note", note);
    fields.emplace_back("job file", file.string());
    out.write(render_fields(fields, out.colour(), out.line_width()));
    const std::string shown = safe_text(file.string());
    out.line("\nNext:\n  trainyard plan " + shown +
             "              what it needs, before anything starts\n  trainyard submit " + shown +
             " --watch    train it on the server" + local_run_line(session, shown));
  }
  return static_cast<int>(client::kExitOk);
}

Result<int> run_init(Session& session, const InitOptions& o) {
  if (o.data.empty() || o.data == "-") return usage_error("DATA: expected a file or a folder");
  if (!o.name.empty() && !is_resource_id(o.name)) {
    return usage_error("--name: " + quoted_value(o.name) + ", expected " + resource_id_rule());
  }
  const fs::path file = o.out.empty() ? default_file(o.data) : fs::path(o.out);
  if (Status s = check_output_file(file, o.overwrite); !s.ok()) return std::move(s).error();
  if (!o.model.empty()) return run_fine_tune(session, o, file);
  TemporaryFolder scratch;
  ASSIGN_OR_RETURN(const JobDraft draft,
                   init::draft_job(o.data, {.target = o.target, .scratch = scratch.path()}));
  const std::string text =
      init::job_yaml(draft, {o.data, file, draft_name(o, file), name_of(default_file(o.data))});
  if (Status s = write_job_file(file, text); !s.ok()) return std::move(s).error();
  if (session.format() == Format::kName) {
    session.out().line(file.string());
  } else if (session.machine()) {
    session.out().line(text_of(json_of_draft(draft, file), session.format()));
  } else {
    show_draft(session, draft, o, file);
  }
  return static_cast<int>(client::kExitOk);
}

}  // namespace

Command init_command() {
  auto o = std::make_shared<InitOptions>();
  return {
      "init",
      "Inspect data and write a first job file",
      {"trainyard init iris.csv", "trainyard init houses.csv --target price",
       "trainyard init photos/ --out pets.yaml", "trainyard init chats.jsonl --model SmolLM2/"},
      "DATA is a table (CSV, separated by commas, semicolons, tabs or |; JSON lines), a folder "
      "or an archive of\nimages with a folder for each class, a text or .txt files, or arrays "
      "(NPZ, NPY, safetensors, IDX). Nothing is\nuploaded, and no server is contacted. Comments in "
      "the file explain what each column is, which columns are left\nout and why, and each first "
      "choice: change what you know better. Of a large table, the first 32 MiB are read.\nWith "
      "--model, DATA is JSON lines of chats (messages), of prompt and completion, or of text, and "
      "the job fine-tunes\nthe language model in that folder or GGUF file. Texts with a label make "
      "it "
      "a classifier.",
      [o](OptionSet& options) {
        options.positional("DATA", o->data, "a file or a folder");
        options.text("--target", "COLUMN", o->target,
                     "the column to predict; default: chosen by names, places and values, with how "
                     "sure that is and the next candidates");
        options.text("--model", "FOLDER", o->model,
                     "fine-tune the language model in this folder, as transformers saves it, or in "
                     "this GGUF file");
        options.text("--out", "FILE", o->out,
                     "the job file, default DATA's name with .yaml in this folder");
        options.text("--name", "NAME", o->name, "the job's name, default the job file's");
        add_overwrite_option(options, o->overwrite);
      },
      [o](Session& session) { return run_init(session, *o); }};
}

}  // namespace trainyard::cli
