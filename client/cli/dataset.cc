// trainyard dataset upload|list|get|delete.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include "client/cli/command.h"
#include "client/cli/confirm.h"
#include "client/cli/gguf_model.h"
#include "client/cli/relative_name.h"
#include "client/cli/upload_flags.h"
#include "client/cli/upload_view.h"
#include "client/lib/spec_file.h"
#include "proto/spec/dataset_format.h"
#include "src/base/text.h"

namespace trainyard::cli {
namespace {

constexpr client::Rpc<v1::ListDatasetsRequest, v1::ListDatasetsResponse> kListDatasets{
    "DatasetService/ListDatasets"};
constexpr client::Rpc<v1::DeleteDatasetRequest, google::protobuf::Empty> kDeleteDataset{
    "DatasetService/DeleteDataset", client::Repeat::kNever};

std::string skipped_text(const v1::DatasetSchema& s) {
  if (s.skipped_rows() > 0) {
    return grouped(s.skipped_rows()) + (s.skipped_rows() == 1 ? " row" : " rows") +
           " without a target";
  }
  const int64_t count = s.skipped_files();
  if (count == 0) return "";
  const std::string what = s.has_text() ? "text" : "image";
  if (count == 1)
    return "1 file that is not " + (s.has_text() ? what : "an " + what) + " or has no label";
  return grouped(count) + " files that are not " + (s.has_text() ? what : what + "s") +
         " or have no label";
}

std::string shape_text(const v1::DatasetSchema& schema) {
  if (schema.image_size() == 3) {
    std::string text = "images " + std::to_string(schema.image(0)) + " x " +
                       std::to_string(schema.image(1)) + " x " + std::to_string(schema.image(2));
    if (schema.resize() == v1::ImagesFormat::STRETCH) text += ", stretched";
    if (schema.resize() == v1::ImagesFormat::CROP) text += ", cropped";
    if (schema.resize() == v1::ImagesFormat::PAD) text += ", padded";
    return text;
  }
  if (schema.has_text()) {
    const v1::DatasetSchema::Text& text = schema.text();
    const std::string of = " of " + grouped(text.vocabulary_size());
    if (schema.has_documents()) return "documents, tokens" + of;
    return text.max_length() == 0 ? "a text, tokens" + of
                                  : grouped(text.max_length()) + " tokens" + of;
  }
  return schema.columns_size() > 0 ? std::to_string(schema.columns_size()) + " columns" : "";
}

std::string tokenizer_text(const v1::DatasetSchema& schema) {
  if (!schema.has_text()) return "";
  std::string name = v1::Tokenizer_Name(schema.text().tokenizer());
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

std::string pieces_text(const v1::DatasetSchema& schema) {
  constexpr size_t kShown = 200;
  std::string pieces;
  for (const std::string& piece : schema.text().pieces()) {
    if (pieces.size() > kShown) return pieces + " ...";
    pieces += (pieces.empty() ? "" : " ") + (piece == " " ? "' '" : safe_text(piece));
  }
  return pieces;
}

std::string statistic_text(double value) {
  if (std::fabs(value) < 1e15 && value == std::trunc(value)) {
    return grouped(static_cast<int64_t>(value));
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

/// Returns the range and statistics of a column: "0.2 to 5.01, mean 0.7979, std 0.474".
std::string numbers_text(const v1::DatasetSchema::Numbers& numbers) {
  return statistic_text(numbers.min()) + " to " + statistic_text(numbers.max()) + ", mean " +
         statistic_text(numbers.mean()) + ", std " + statistic_text(numbers.std());
}

/// Returns text such as "Ideal 21,551, Premium 13,791, ... 1 more": sorted by count if the counts
/// are known, else in the given order.
std::string counted_names(const google::protobuf::RepeatedPtrField<std::string>& names,
                          const google::protobuf::RepeatedField<int64_t>& counts, int64_t count,
                          size_t length_max) {
  std::vector<int> order(static_cast<size_t>(names.size()));
  std::iota(order.begin(), order.end(), 0);
  const bool counted = counts.size() == names.size();
  if (counted) std::ranges::stable_sort(order, std::greater(), [&](int i) { return counts[i]; });
  std::string text;
  int shown = 0;
  for (const int i : order) {
    if (text.size() > length_max) {
      return text + ", ... " + grouped(count - shown) + " more";
    }
    text += (shown++ > 0 ? ", " : "") + safe_text(names[i]);
    if (counted) text += " " + grouped(counts[i]);
  }
  return text;
}

std::string channels_text(const v1::DatasetSchema& schema) {
  std::string text;
  for (const v1::DatasetSchema::Numbers& channel : schema.channels()) {
    text += (text.empty() ? "" : "; ") + numbers_text(channel);
  }
  return text;
}

std::string kind_text(const v1::DatasetSchema::Column& column) {
  return column.categorical() ? "category"
         : column.text()      ? "text"
         : column.date()      ? "date"
                              : "number";
}

std::string target_text(const v1::DatasetSchema& schema) {
  if (schema.classification()) return std::to_string(schema.class_count()) + " classes";
  if (schema.has_documents() || (schema.has_text() && schema.text().max_length() == 0)) {
    return "next token";
  }
  return schema.target().empty() ? "" : "number";
}

Style style_of(v1::Dataset::State state) {
  return state == v1::Dataset::READY    ? Style::kGood
         : state == v1::Dataset::FAILED ? Style::kBad
                                        : Style::kBusy;
}

constexpr size_t kClassesShown = 200, kNamesShown = 60;  // approximate number of characters

std::string token_counts_text(const v1::DatasetSchema::Documents& d) {
  std::string text = grouped(d.train_tokens()) + " to train, of which " +
                     grouped(d.train_counted()) + " count in the loss";
  if (d.test_tokens() > 0) {
    text += "; " + grouped(d.test_tokens()) + " to test, of which " + grouped(d.test_counted()) +
            " count";
  }
  return text;
}

std::string lengths_text(const v1::DatasetSchema::Documents& d) {
  return grouped(static_cast<int64_t>(d.lengths().min())) + " to " +
         grouped(static_cast<int64_t>(d.lengths().max())) + " tokens, mean " +
         human_number(d.lengths().mean()) + "; half have at most " + grouped(d.length_half()) +
         ", 90 % " + grouped(d.length_90()) + ", 99 % " + grouped(d.length_99());
}

std::string render_dataset(const v1::Dataset& d, const Terminal& terminal) {
  const bool colour = terminal.colour();
  const v1::DatasetSchema& s = d.schema();
  std::string sources;
  for (const v1::DatasetSource& source : d.spec().sources()) {
    const std::string& place =
        source.server_path().empty() ? source.filename() : source.server_path();
    sources += (sources.empty() ? "" : ", ") + safe_text(place.empty() ? source.sha256() : place);
  }
  std::string rows;
  const bool stream = s.has_text() && s.text().max_length() == 0 && !s.has_documents();
  if (s.train_rows() > 0)
    rows = grouped(s.train_rows()) + " to train, " + grouped(s.test_rows()) + " to test";
  std::vector<std::pair<std::string, Cell>> fields = {
      {"dataset", std::string(relative_name(d.name()))},
      {"state", Cell(v1::Dataset::State_Name(d.state()), style_of(d.state()))},
      {"why", d.message().empty() ? d.reason() : d.message() + " [" + d.reason() + "]"},
      {"files", sources},
      {stream              ? "tokens"
       : s.has_documents() ? "documents"
                           : "rows",
       rows},
      {"tokens", s.has_documents() ? token_counts_text(s.documents()) : ""},
      {"lengths", s.has_documents() ? lengths_text(s.documents()) : ""},
      {"template", s.documents().template_()},
      {"inputs", shape_text(s)},
      {s.channels_size() > 1 ? "channels" : "pixels", channels_text(s)},
      {"skipped", skipped_text(s)},
      {"tokenizer", tokenizer_text(s)},
      {"vocabulary", pieces_text(s)},
      {"tokens per row", s.text().has_tokens_per_row() && !s.has_documents()
                             ? numbers_text(s.text().tokens_per_row())
                             : ""},
      {"target", s.target().empty() ? target_text(s) : s.target() + " (" + target_text(s) + ")"},
      {"values", s.has_target_numbers() ? numbers_text(s.target_numbers()) : ""},
      {"classes", counted_names(s.classes(), s.class_counts(), s.class_count(), kClassesShown)},
      {"size", d.size_bytes() > 0 ? human_bytes(d.size_bytes()) : ""},
      {"created", local_time(d.create_time())},
      {"digest", d.digest()}};
  for (const v1::DataWarning& warning : s.warnings()) {
    fields.emplace_back("warning", Cell(warning.message(), Style::kNotice));
  }
  std::string out = render_fields(fields, colour, terminal.line_width());
  if (s.columns_size() == 0) return out;
  Table table({{"COLUMN"}, {"KIND"}, {"MISSING", true}, {"VALUES"}});
  for (const v1::DatasetSchema::Column& c : s.columns()) {
    table.add({c.name(), kind_text(c), grouped(c.missing_count()),
               c.has_numbers() ? numbers_text(c.numbers())
                               : counted_names(c.categories(), c.category_counts(),
                                               c.categories_size(), kNamesShown)});
  }
  return out + "\n" + table.render(colour);
}

Result<int> run_upload(Session& session, const UploadOptions& o) {
  v1::DatasetFile file;
  std::filesystem::path folder;
  if (!o.file.empty()) {
    const auto flag = std::ranges::find_if(o.flags, &UploadFlag::is_given);
    const std::string other = flag != o.flags.end() ? flag->name
                              : !o.test.empty()     ? "--test"
                              : o.on_server         ? "--on-server"
                                                    : "";
    if (!other.empty()) {
      return usage_error("a spec file and " + other +
                         ": expected only one of them; name data with an option, such as --csv " +
                         safe_text(o.file) + "; --set changes a field of a spec file");
    }
    ASSIGN_OR_RETURN(auto read, client::read_dataset_file(o.file, o.sets));
    file = std::move(read.first);
    folder = std::move(read.second);
    if (!o.name.empty()) file.set_name(o.name);
  } else {
    ASSIGN_OR_RETURN(file, dataset_of_flags(o));
  }
  if (!spec::brings_data(file)) return nothing_to_upload();
  TemporaryFolder scratch;
  if (Status s = unpack_tokenizer(folder, scratch, file); !s.ok()) return std::move(s).error();
  ASSIGN_OR_RETURN(const v1::Dataset dataset, ensure_dataset_shown(session, file, folder, true));
  session.show(dataset, [&] { return std::string(relative_name(dataset.name())) + "\n"; },
               {dataset.name()});
  session.hint("'dataset: " + safe_text(relative_name(dataset.name())) +
               "' in a spec trains on it; without the @, a job trains on the newest version.");
  return static_cast<int>(client::kExitOk);
}

Command upload_command() {
  auto o = std::make_shared<UploadOptions>();
  return {
      "dataset upload",
      "Upload files and create a dataset from them",
      {"trainyard dataset upload --csv iris.csv --target species --name iris",
       "trainyard dataset upload --csv digits.csv.gz --no-header --target c64 --image 1,8,8",
       "trainyard dataset upload --train-images train-images-idx3-ubyte.gz --train-labels "
       "train-labels-idx1-ubyte.gz --name mnist",
       "trainyard dataset upload --text input.txt --name shakespeare",
       "trainyard dataset upload --csv news.csv --text-column title --target topic",
       "trainyard dataset upload --images photos/ --size 64,64 --resize crop --test-share 0.2",
       "trainyard dataset upload --arrays data.npz --inputs x --targets y --test-share 0.2",
       "trainyard dataset upload --images /srv/data/photos --on-server",
       "trainyard dataset upload spec.yaml"},
      "Files are identified by their content: a file that the server already has is not sent "
      "again, and an\ninterrupted upload resumes where it stopped. New content under an existing "
      "name becomes its next version.\nPrints the dataset's name with its version. "
      "docs/job_spec.md explains each option.",
      [o](OptionSet& options) { add_upload_options(options, *o); },
      [o](Session& session) { return run_upload(session, *o); }};
}

Result<v1::ListDatasetsResponse> read_datasets(client::Client& server, bool all_versions) {
  v1::ListDatasetsRequest request;
  request.set_parent(server.parent());
  request.set_all_versions(all_versions);
  v1::ListDatasetsResponse all;
  do {
    ASSIGN_OR_RETURN(v1::ListDatasetsResponse page, server.call(kListDatasets, request));
    for (v1::Dataset& dataset : *page.mutable_datasets()) *all.add_datasets() = std::move(dataset);
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return all;
}

bool has_failed(const v1::Dataset& dataset) { return dataset.state() == v1::Dataset::FAILED; }

Result<int> run_dataset_list(Session& session, bool all_versions) {
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  ASSIGN_OR_RETURN(const v1::ListDatasetsResponse all, read_datasets(*server, all_versions));
  const bool any_failed = std::ranges::any_of(all.datasets(), has_failed);
  std::vector<std::string> names;
  for (const v1::Dataset& dataset : all.datasets()) names.push_back(dataset.name());
  session.show(
      all,
      [&] {
        if (names.empty()) return std::string();
        std::vector<Column> columns = {{.title = "NAME", .is_name = true},
                                       {"STATE"},
                                       {"ROWS", true},
                                       {"TEST", true},
                                       {"INPUTS"},
                                       {"TARGET"},
                                       {"SIZE", true},
                                       {"AGE", true}};
        if (any_failed) columns.push_back({.title = "REASON", .shortens = true});
        Table table(std::move(columns));
        for (const v1::Dataset& d : all.datasets()) {
          std::vector<Cell> cells = {std::string(relative_name(d.name())),
                                     Cell(v1::Dataset::State_Name(d.state()), style_of(d.state())),
                                     grouped(d.schema().train_rows()),
                                     grouped(d.schema().test_rows()),
                                     shape_text(d.schema()),
                                     target_text(d.schema()),
                                     human_bytes(d.size_bytes()),
                                     age_of(d.create_time())};
          if (any_failed) cells.emplace_back(d.message());
          table.add(std::move(cells));
        }
        return table.render(session.out());
      },
      names);
  if (any_failed) session.hint("'trainyard dataset delete --failed' removes those that failed.");
  if (names.empty())
    session.hint("No datasets yet. 'trainyard dataset upload' or a spec with a path creates one.");
  return static_cast<int>(client::kExitOk);
}

Command list_datasets_command() {
  auto all_versions = std::make_shared<bool>(false);
  return {"dataset list",
          "List datasets",
          {"trainyard dataset list", "trainyard dataset list --all-versions"},
          "",
          [all_versions](OptionSet& options) {
            options.flag("--all-versions", *all_versions, "show all versions, not only the newest");
          },
          [all_versions](Session& session) { return run_dataset_list(session, *all_versions); }};
}

Command get_dataset_command() {
  auto name = std::make_shared<std::string>();
  return {"dataset get",
          "Show a dataset: rows, columns, classes",
          {"trainyard dataset get digits", "trainyard dataset get digits@1"},
          "",
          [name](OptionSet& options) {
            options.positional("DATASET", *name,
                               "the dataset's name; without @VERSION the newest version");
          },
          [name](Session& session) -> Result<int> {
            ASSIGN_OR_RETURN(const std::string full, session.full_name("datasets", *name));
            ASSIGN_OR_RETURN(client::Client * server, session.client());
            ASSIGN_OR_RETURN(const v1::Dataset dataset,
                             server->call(client::rpc::kGetDataset, full));
            session.show(dataset, [&] { return render_dataset(dataset, session.out()); },
                         {dataset.name()});
            return static_cast<int>(client::kExitOk);
          }};
}

struct DatasetDeleteOptions {
  std::string name;
  bool failed = false;
  ConfirmOptions confirm;
};

Result<int> delete_failed_datasets(Session& session, const ConfirmOptions& confirm) {
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  ASSIGN_OR_RETURN(const v1::ListDatasetsResponse all, read_datasets(*server, true));
  std::vector<std::string> names;
  for (const v1::Dataset& d : all.datasets()) {
    if (has_failed(d)) names.emplace_back(relative_name(d.name()));
  }
  if (names.empty()) {
    session.hint("No dataset has failed.");
    return static_cast<int>(client::kExitOk);
  }
  if (Status sure = confirm_delete(session, confirm, "dataset", names); !sure.ok()) {
    return std::move(sure).error();
  }
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(const std::string full, session.full_name("datasets", name));
    if (Status deleted = server->call(kDeleteDataset, full); !deleted.ok()) {
      return std::move(deleted).error();
    }
    session.err().line("deleted dataset " + safe_text(name));
  }
  return static_cast<int>(client::kExitOk);
}

Command delete_dataset_command() {
  auto o = std::make_shared<DatasetDeleteOptions>();
  return {"dataset delete",
          "Delete a dataset, or one of its versions, that no unfinished job uses",
          {"trainyard dataset delete digits@1", "trainyard dataset delete digits --yes",
           "trainyard dataset delete --failed --yes"},
          "A name without @VERSION deletes all versions of the dataset. A deleted version's number "
          "is never reused.",
          [o](OptionSet& options) {
            options.positional("DATASET", o->name, "the dataset's name, or NAME@VERSION", false);
            options.flag("--failed", o->failed, "all datasets whose data was refused");
            add_confirm_options(options, o->confirm);
          },
          [o](Session& session) -> Result<int> {
            if (o->failed == !o->name.empty()) {
              return usage_error("DATASET, --failed: expected one of them");
            }
            if (o->failed) return delete_failed_datasets(session, o->confirm);
            const std::string all = o->name.find('@') == o->name.npos ? ", all versions" : "";
            if (Status sure = confirm_delete(session, o->confirm, "dataset", {o->name}, all);
                !sure.ok()) {
              return std::move(sure).error();
            }
            ASSIGN_OR_RETURN(const std::string full, session.full_name("datasets", o->name));
            ASSIGN_OR_RETURN(client::Client * server, session.client());
            if (Status deleted = server->call(kDeleteDataset, full); !deleted.ok())
              return std::move(deleted).error();
            session.err().line("deleted dataset " + safe_text(relative_name(full)) + all);
            return static_cast<int>(client::kExitOk);
          }};
}

}  // namespace

std::vector<Command> dataset_commands() {
  std::vector<Command> list;
  list.push_back(upload_command());
  list.push_back(list_datasets_command());
  list.push_back(get_dataset_command());
  list.push_back(dataset_preview_command());
  list.push_back(delete_dataset_command());
  return list;
}

}  // namespace trainyard::cli
