// trainyard dataset upload|list|get|delete.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "client/cli/command.h"
#include "client/cli/confirm.h"
#include "client/cli/upload_view.h"
#include "client/lib/names.h"
#include "client/lib/spec_file.h"
#include "src/base/text.h"

namespace trainyard::cli {
namespace {

using client::short_name;

struct UploadOptions {
  std::string file;
  std::vector<std::string> sets;
  std::string name, csv, test, target, target_kind, delimiter;
  bool no_header = false;
  std::string image;
  std::vector<std::string> categorical, ignore, text_columns;
  std::string text, tokenizer;
  int64_t vocabulary_size = 0, max_length = 0;
  double test_share = 0;
  std::string train_images, train_labels, test_images, test_labels;
  std::string images, cifar, size, resize, labels;
  std::string jsonl, text_files, field;
  std::vector<std::string> dates;
  std::string arrays, inputs, targets, test_inputs, test_targets;
  int64_t channels = 0, seed = -1;
  bool on_server = false;
};

/// "1,8,8": `count` numbers.
std::optional<std::vector<int64_t>> parse_sizes(const std::string& text, size_t count) {
  std::vector<int64_t> shape;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    if (part.empty() || part.size() > 6 ||
        part.find_first_not_of("0123456789") != std::string::npos) {
      return std::nullopt;
    }
    shape.push_back(std::stoll(part));
    begin = end + 1;
  }
  if (shape.size() != count) return std::nullopt;
  return shape;
}

Error option_error(const std::string& flag, const std::string& value, const std::string& expected) {
  return usage_error(flag + ": " + quoted_value(value) + ", expected " + expected);
}

Status read_images_flags(const UploadOptions& o, v1::ImagesFormat& images) {
  if (!o.size.empty()) {
    const auto size = parse_sizes(o.size, 2);
    if (!size) return option_error("--size", o.size, "height,width such as 32,32");
    for (const int64_t side : *size) images.add_size(side);
  }
  if (!o.resize.empty()) {
    std::string name = o.resize;
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::toupper(c); });
    v1::ImagesFormat::Resize mode{};
    if (!v1::ImagesFormat::Resize_Parse(name, &mode) || mode == 0) {
      return option_error("--resize", o.resize, "stretch, crop or pad");
    }
    images.set_resize(mode);
  }
  if (o.channels != 0) images.set_channels(o.channels);
  images.set_labels(o.labels);
  if (o.test_share != 0) images.set_test_share(o.test_share);
  if (o.seed >= 0) images.set_seed(static_cast<uint64_t>(o.seed));
  return {};
}

Result<v1::CsvFormat::TargetKind> parse_target_kind(const std::string& name) {
  if (name.empty()) return v1::CsvFormat::TARGET_KIND_UNSPECIFIED;
  if (name == "class") return v1::CsvFormat::CLASS;
  if (name == "numeric") return v1::CsvFormat::NUMERIC;
  return option_error("--target-kind", name, "class or numeric");
}

Result<v1::Tokenizer> parse_tokenizer(const std::string& name) {
  if (name.empty()) return v1::TOKENIZER_UNSPECIFIED;
  std::string upper = name;
  std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return std::toupper(c); });
  v1::Tokenizer tokenizer{};
  if (v1::Tokenizer_Parse(upper, &tokenizer) && tokenizer != 0) return tokenizer;
  return option_error("--tokenizer", name, "word, char, byte, bpe or unigram");
}

/// How rows of text become tokens.
template <typename Format>
void set_row_text(const UploadOptions& o, v1::Tokenizer tokenizer, Format& format) {
  format.set_tokenizer(tokenizer);
  if (o.vocabulary_size != 0) format.set_vocabulary_size(o.vocabulary_size);
  if (o.max_length != 0) format.set_max_length(o.max_length);
}

/// What CSV and JSON lines have in common.
template <typename Format>
void set_table(const UploadOptions& o, v1::CsvFormat::TargetKind target_kind,
               v1::Tokenizer tokenizer, Format& format) {
  format.set_target(o.target);
  format.set_target_kind(target_kind);
  for (const std::string& column : o.categorical) format.add_categorical(column);
  for (const std::string& column : o.ignore) format.add_ignore(column);
  for (const std::string& column : o.dates) format.add_date(column);
  for (const std::string& column : o.text_columns) format.add_text(column);
  set_row_text(o, tokenizer, format);
}

Result<v1::DatasetFile> from_flags(const UploadOptions& o) {
  v1::DatasetFile file;
  file.set_name(o.name);
  for (const std::string* path :
       {&o.csv, &o.jsonl, &o.text, &o.text_files, &o.images, &o.cifar, &o.arrays}) {
    if (path->empty()) continue;
    if (!file.path().empty()) {
      return usage_error(
          "give one of --csv, --jsonl, --text, --text-files, --images, --cifar and "
          "--arrays");
    }
    file.set_path(*path);
  }
  if (!o.cifar.empty()) file.mutable_cifar();
  if (!o.images.empty()) {
    if (Status s = read_images_flags(o, *file.mutable_images()); !s.ok()) {
      return std::move(s).error();
    }
  }
  file.set_test_path(o.test);
  if (o.on_server) {
    if (file.path().empty()) {
      return usage_error("--on-server needs --csv, --text, --images or --cifar");
    }
    file.set_server_path(std::exchange(*file.mutable_path(), {}));
    file.set_server_test_path(std::exchange(*file.mutable_test_path(), {}));
  }
  file.set_train_images(o.train_images);
  file.set_train_labels(o.train_labels);
  file.set_test_images(o.test_images);
  file.set_test_labels(o.test_labels);
  ASSIGN_OR_RETURN(const v1::CsvFormat::TargetKind target_kind, parse_target_kind(o.target_kind));
  if (!o.arrays.empty()) {
    file.mutable_arrays()->set_inputs(o.inputs);
    file.mutable_arrays()->set_targets(o.targets);
  } else {
    file.set_inputs(o.inputs);
    file.set_targets(o.targets);
    file.set_test_inputs(o.test_inputs);
    file.set_test_targets(o.test_targets);
  }
  if (!o.arrays.empty() || !o.inputs.empty()) {
    v1::ArraysFormat& arrays = *file.mutable_arrays();
    arrays.set_target_kind(target_kind);
    if (o.test_share != 0) arrays.set_test_share(o.test_share);
    if (o.seed >= 0) arrays.set_seed(static_cast<uint64_t>(o.seed));
  }
  ASSIGN_OR_RETURN(const v1::Tokenizer tokenizer, parse_tokenizer(o.tokenizer));
  if (!o.text.empty()) {
    v1::TextFormat& text = *file.mutable_text();
    text.set_tokenizer(tokenizer);
    text.set_field(o.field);
    if (o.vocabulary_size != 0) text.set_vocabulary_size(o.vocabulary_size);
    if (o.test_share != 0) text.set_test_share(o.test_share);
  }
  if (!o.text_files.empty()) {
    v1::TextFilesFormat& files = *file.mutable_text_files();
    set_row_text(o, tokenizer, files);
    if (o.test_share != 0) files.set_test_share(o.test_share);
    if (o.seed >= 0) files.set_seed(static_cast<uint64_t>(o.seed));
  }
  if (!o.jsonl.empty()) {
    set_table(o, target_kind, tokenizer, *file.mutable_jsonl());
  } else if (!o.csv.empty() || !o.target.empty()) {
    v1::CsvFormat& csv = *file.mutable_csv();
    set_table(o, target_kind, tokenizer, csv);
    csv.set_delimiter(o.delimiter == "\\t" ? "\t" : o.delimiter);
    if (o.no_header) csv.set_header(false);
    if (!o.image.empty()) {
      const auto shape = parse_sizes(o.image, 3);
      if (!shape) return option_error("--image", o.image, "channels,height,width such as 1,8,8");
      for (const int64_t size : *shape) csv.add_image(size);
    }
  }
  std::vector<client::SpecProblem> problems;
  client::check_dataset_file(file, "", nullptr, problems);
  if (problems.empty()) return file;
  const std::string& field = problems.front().field;
  return make_error(
      ErrorCode::kInvalidArgument, problems.front().reason,
      (field.empty() ? std::string("the dataset") : field) + ": " + problems.front().description);
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

/// "0.2 to 5.01, mean 0.7979, std 0.474"
std::string numbers_text(const v1::DatasetSchema::Numbers& numbers) {
  return statistic_text(numbers.min()) + " to " + statistic_text(numbers.max()) + ", mean " +
         statistic_text(numbers.mean()) + ", std " + statistic_text(numbers.std());
}

/// "Ideal 21,551, Premium 13,791, ... 1 more": the most frequent first, where they were counted.
std::string counted_names(const google::protobuf::RepeatedPtrField<std::string>& names,
                          const google::protobuf::RepeatedField<int64_t>& counts,
                          size_t length_max) {
  std::vector<int> order(static_cast<size_t>(names.size()));
  std::iota(order.begin(), order.end(), 0);
  const bool counted = counts.size() == names.size();
  if (counted) std::ranges::stable_sort(order, std::greater(), [&](int i) { return counts[i]; });
  std::string text;
  int shown = 0;
  for (const int i : order) {
    if (text.size() > length_max) {
      return text + ", ... " + grouped(names.size() - shown) + " more";
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
  if (schema.classification()) return std::to_string(schema.classes_size()) + " classes";
  if (schema.has_text() && schema.text().max_length() == 0) return "next token";
  return schema.target().empty() ? "" : "number";
}

Style style_of(v1::Dataset::State state) {
  return state == v1::Dataset::READY    ? Style::kGood
         : state == v1::Dataset::FAILED ? Style::kBad
                                        : Style::kBusy;
}

constexpr size_t kClassesShown = 200, kNamesShown = 60;  // characters, about

std::string render_dataset(const v1::Dataset& d, bool colour) {
  const v1::DatasetSchema& s = d.schema();
  std::string sources;
  for (const v1::DatasetSource& source : d.spec().sources()) {
    const std::string& place =
        source.server_path().empty() ? source.filename() : source.server_path();
    sources += (sources.empty() ? "" : ", ") + safe_text(place.empty() ? source.sha256() : place);
  }
  std::string rows;
  const bool stream = s.has_text() && s.text().max_length() == 0;
  if (s.train_rows() > 0)
    rows = grouped(s.train_rows()) + " to train, " + grouped(s.test_rows()) + " to test";
  std::string out = render_fields(
      {{"dataset", std::string(short_name(d.name()))},
       {"state", Cell(v1::Dataset::State_Name(d.state()), style_of(d.state()))},
       {"why", d.message().empty() ? d.reason() : d.message() + " [" + d.reason() + "]"},
       {"files", sources},
       {stream ? "tokens" : "rows", rows},
       {"inputs", shape_text(s)},
       {s.channels_size() > 1 ? "channels" : "pixels", channels_text(s)},
       {"skipped", s.skipped_files() > 0 ? grouped(s.skipped_files()) +
                                               (s.has_text() ? " files that are no texts"
                                                             : " files that are no images") +
                                               " or have no label"
                                         : ""},
       {"tokenizer", tokenizer_text(s)},
       {"vocabulary", pieces_text(s)},
       {"tokens a row",
        s.text().has_tokens_per_row() ? numbers_text(s.text().tokens_per_row()) : ""},
       {"target", s.target().empty() ? target_text(s) : s.target() + " (" + target_text(s) + ")"},
       {"values", s.has_target_numbers() ? numbers_text(s.target_numbers()) : ""},
       {"classes", counted_names(s.classes(), s.class_counts(), kClassesShown)},
       {"size", d.size_bytes() > 0 ? human_bytes(d.size_bytes()) : ""},
       {"created", local_time(d.create_time())},
       {"digest", d.digest()}},
      colour);
  if (s.columns_size() == 0) return out;
  Table table({{"COLUMN"}, {"KIND"}, {"MISSING", true}, {"VALUES"}});
  for (const v1::DatasetSchema::Column& c : s.columns()) {
    table.add({c.name(), kind_text(c), grouped(c.missing_count()),
               c.has_numbers() ? numbers_text(c.numbers())
                               : counted_names(c.categories(), c.category_counts(), kNamesShown)});
  }
  return out + "\n" + table.render(colour);
}

Result<int> run_upload(Session& session, const UploadOptions& o) {
  v1::DatasetFile file;
  std::filesystem::path folder;
  if (!o.file.empty()) {
    const bool flags = std::ranges::any_of(
        std::initializer_list<const std::string*>{&o.csv, &o.jsonl, &o.text, &o.text_files,
                                                  &o.images, &o.cifar, &o.arrays, &o.train_images,
                                                  &o.inputs},
        [](const std::string* path) { return !path->empty(); });
    if (flags) {
      return usage_error(
          "give a spec file, or --csv, --jsonl, --text, --text-files, --images, "
          "--cifar, --arrays, --inputs "
          "or --train-images; not two");
    }
    ASSIGN_OR_RETURN(auto read, client::read_dataset_file(o.file, o.sets));
    file = std::move(read.first);
    folder = std::move(read.second);
    if (!o.name.empty()) file.set_name(o.name);
  } else {
    ASSIGN_OR_RETURN(file, from_flags(o));
  }
  if (file.path().empty() && file.train_images().empty() && file.inputs().empty() &&
      file.server_path().empty()) {
    return make_error(ErrorCode::kInvalidArgument, "FIELD_REQUIRED",
                      "nothing to upload: give --csv or --jsonl FILE --target COLUMN, or --text or "
                      "--text-files PATH, or "
                      "--images PATH, or --cifar PATH, or --arrays FILE, or --inputs and "
                      "--targets, or --train-images and --train-labels, or a spec file with a "
                      "dataset path");
  }
  ASSIGN_OR_RETURN(const v1::Dataset dataset, ensure_dataset_shown(session, file, folder, true));
  session.show(dataset, [&] { return std::string(short_name(dataset.name())) + "\n"; },
               {dataset.name()});
  session.hint("'dataset: " + safe_text(short_name(dataset.name())) +
               "' in a spec trains on it; without the @, on the newest version.");
  return static_cast<int>(client::kExitOk);
}

Command upload_command() {
  auto o = std::make_shared<UploadOptions>();
  return {
      "dataset upload",
      "Upload files and make a dataset of them",
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
      "Files are known by their content: what the server has is not sent again, and an upload that "
      "was cut goes on\n"
      "where it stopped. Other content under a name that is taken is the next version of it. "
      "Prints the dataset's name\n"
      "with its version. docs/job_spec.md explains each option.",
      [o](OptionSet& options) {
        options.positional("SPEC", o->file, "a spec file whose dataset is uploaded", false);
        options.text("--name", "NAME", o->name,
                     "the dataset's name; made by the server if left out");
        options.text("--csv", "FILE", o->csv, "rows, plain or gzip");
        options.text("--target", "COLUMN", o->target, "the column to learn");
        options.text("--target-kind", "KIND", o->target_kind, "class or numeric",
                     {"class", "numeric"});
        options.text("--test", "PATH", o->test, "rows, images or texts of a test set");
        options.flag("--on-server", o->on_server,
                     "the paths are the server's, in folders that its operator allows");
        options.flag("--no-header", o->no_header, "the CSV has no header: columns are c0, c1, ...");
        options.text("--delimiter", "CHARACTER", o->delimiter,
                     "default , and of a .tsv a tab; \\t for a tab");
        options.text("--jsonl", "FILE", o->jsonl,
                     "rows as JSON objects, one on each line, plain or gzip");
        options.texts("--date", "COLUMN", o->dates, "dates or times, ISO 8601");
        options.text("--image", "C,H,W", o->image, "the columns are pixels of an image");
        options.texts("--categorical", "COLUMN", o->categorical, "numbers that mean categories");
        options.texts("--ignore", "COLUMN", o->ignore, "a column to leave out");
        options.texts("--text-column", "COLUMN", o->text_columns,
                      "a column of text; others are then left out");
        options.text("--text", "PATH", o->text,
                     "one text, for language models: a file, or a folder or archive of .txt files");
        options.text("--field", "MEMBER", o->field,
                     "the text of --text is this member of JSON lines");
        options.text("--text-files", "PATH", o->text_files,
                     "a folder or archive of .txt files, a folder for each class");
        options.text("--tokenizer", "KIND", o->tokenizer,
                     "of text columns: word (default), char, byte, bpe, unigram; of a text: char "
                     "(default), byte, bpe, unigram",
                     {"word", "char", "byte", "bpe", "unigram"});
        options.integer("--vocabulary-size", "N", o->vocabulary_size,
                        "words or pieces that are known at most, default 10000");
        options.integer("--max-length", "N", o->max_length,
                        "tokens of a row with text columns, default 128");
        options.text("--images", "PATH", o->images,
                     "a folder or archive of JPEG and PNG files, a folder for each class");
        options.text("--size", "H,W", o->size, "make all images this high and wide");
        options.text("--resize", "MODE", o->resize, "how: stretch (default), crop or pad",
                     {"stretch", "crop", "pad"});
        options.integer("--channels", "N", o->channels,
                        "1 (grey) or 3; default 3 if any image has colour");
        options.text("--labels", "FILE", o->labels,
                     "a CSV among the images: columns file, and class or number");
        options.integer("--seed", "N", o->seed, "of the draw of --test-share, default 0");
        options.text("--cifar", "PATH", o->cifar,
                     "a folder or archive with CIFAR-10's or CIFAR-100's binary files");
        options.number(
            "--test-share", "SHARE", o->test_share,
            "0 to 0.9: the end of the text, or this much of each class of images, texts or "
            "arrays, is the test set");
        options.text("--arrays", "FILE", o->arrays, "arrays in a NPZ or safetensors file");
        options.text("--inputs", "NAME|FILE", o->inputs,
                     "with --arrays the array's name, default inputs; without, a NPY file");
        options.text("--targets", "NAME|FILE", o->targets, "the same of what to learn");
        options.text("--test-inputs", "FILE", o->test_inputs, "a NPY file of a test set");
        options.text("--test-targets", "FILE", o->test_targets, "a NPY file of a test set");
        options.text("--train-images", "FILE", o->train_images, "IDX images, plain or gzip");
        options.text("--train-labels", "FILE", o->train_labels, "IDX labels");
        options.text("--test-images", "FILE", o->test_images, "IDX images of a test set");
        options.text("--test-labels", "FILE", o->test_labels, "IDX labels of a test set");
        options.texts("--set", "PATH=VALUE", o->sets, "change a field of the spec file");
      },
      [o](Session& session) { return run_upload(session, *o); }};
}

Result<int> run_dataset_list(Session& session, bool all_versions) {
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  v1::ListDatasetsRequest request;
  request.set_parent(server->parent());
  request.set_all_versions(all_versions);
  v1::ListDatasetsResponse all;
  do {
    ASSIGN_OR_RETURN(v1::ListDatasetsResponse page, server->list_datasets(request));
    for (v1::Dataset& dataset : *page.mutable_datasets()) *all.add_datasets() = std::move(dataset);
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  std::vector<std::string> names;
  for (const v1::Dataset& dataset : all.datasets()) names.push_back(dataset.name());
  session.show(
      all,
      [&] {
        if (names.empty()) return std::string();
        Table table({{"NAME"},
                     {"STATE"},
                     {"ROWS", true},
                     {"TEST", true},
                     {"INPUTS"},
                     {"TARGET"},
                     {"SIZE", true},
                     {"AGE", true}});
        for (const v1::Dataset& d : all.datasets()) {
          table.add({std::string(short_name(d.name())),
                     Cell(v1::Dataset::State_Name(d.state()), style_of(d.state())),
                     grouped(d.schema().train_rows()), grouped(d.schema().test_rows()),
                     shape_text(d.schema()), target_text(d.schema()), human_bytes(d.size_bytes()),
                     age_of(d.create_time())});
        }
        return table.render(session.out().colour());
      },
      names);
  if (names.empty())
    session.hint("No datasets yet. 'trainyard dataset upload' or a spec with a path makes one.");
  return static_cast<int>(client::kExitOk);
}

Command list_datasets_command() {
  auto all_versions = std::make_shared<bool>(false);
  return {"dataset list",
          "List datasets",
          {"trainyard dataset list", "trainyard dataset list --all-versions"},
          "",
          [all_versions](OptionSet& options) {
            options.flag("--all-versions", *all_versions, "not only the newest of each");
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
                               "the dataset's name; without @VERSION the newest one");
          },
          [name](Session& session) -> Result<int> {
            ASSIGN_OR_RETURN(const std::string full, session.full_name("datasets", *name));
            ASSIGN_OR_RETURN(client::Client * server, session.client());
            ASSIGN_OR_RETURN(const v1::Dataset dataset, server->get_dataset(full));
            session.show(dataset, [&] { return render_dataset(dataset, session.out().colour()); },
                         {dataset.name()});
            return static_cast<int>(client::kExitOk);
          }};
}

struct DatasetDeleteOptions {
  std::string name;
  ConfirmOptions confirm;
};

Command delete_dataset_command() {
  auto o = std::make_shared<DatasetDeleteOptions>();
  return {"dataset delete",
          "Delete a dataset, or a version of one, that no unfinished job uses",
          {"trainyard dataset delete digits@1", "trainyard dataset delete digits --yes"},
          "A name without @VERSION is all versions of the dataset. A deleted version's number is "
          "never given again.",
          [o](OptionSet& options) {
            options.positional("DATASET", o->name, "the dataset's name, or NAME@VERSION");
            add_confirm_options(options, o->confirm);
          },
          [o](Session& session) -> Result<int> {
            const std::string all = o->name.find('@') == o->name.npos ? ", all versions" : "";
            if (Status sure = confirm_delete(session, o->confirm, "dataset", {o->name}, all);
                !sure.ok()) {
              return std::move(sure).error();
            }
            ASSIGN_OR_RETURN(const std::string full, session.full_name("datasets", o->name));
            ASSIGN_OR_RETURN(client::Client * server, session.client());
            if (Status deleted = server->delete_dataset(full); !deleted.ok())
              return std::move(deleted).error();
            session.err().line("deleted dataset " + safe_text(short_name(full)) + all);
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
