#include "client/init/sniff.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <memory>
#include <optional>

#include "client/init/json_shape.h"
#include "client/init/table_shape.h"
#include "src/base/folder_files.h"
#include "src/base/join.h"
#include "src/base/text.h"
#include "src/data/dataset.h"
#include "src/data/files/byte_source.h"
#include "src/data/files/class_folders.h"
#include "src/data/files/file_tree.h"
#include "src/data/files/foreign_kind.h"
#include "src/data/files/text_files.h"
#include "src/data/table/json_lines.h"

namespace trainyard::init {
namespace {

namespace fs = std::filesystem;

constexpr size_t kStartBytes = size_t{1} << 20;  // read to recognize the kind of a file
constexpr size_t kNamesMax = 1'000'000;  // maximum number of names in a folder or an archive
// minimum share of the records that have the most frequent number of fields
constexpr double kAgreeingMin = 0.9;

// --- files that are no dataset -----------------------------------------------------------------

Error foreign(const fs::path& path, std::string_view what, std::string_view remedy) {
  return unsupported(path.string() + " is " + std::string(what) +
                     ", which Trainyard does not read. " + std::string(remedy));
}

Error foreign(const fs::path& path, const ForeignKind& kind) {
  return foreign(path, kind.what, remedy_of(kind, path.string()));
}

// --- text --------------------------------------------------------------------------------------

/// Returns how many texts stand between blanks.
size_t count_fields(std::string_view line) {
  size_t fields = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const auto is_blank = [&](size_t at) { return line[at] == ' ' || line[at] == '\t'; };
    fields += !is_blank(i) && (i == 0 || is_blank(i - 1)) ? 1 : 0;
  }
  return fields;
}

/// Returns whether the lines are columns of numbers, separated by any number of spaces.
bool is_aligned_by_blanks(std::string_view text) {
  std::optional<size_t> words;
  size_t lines = 0;
  for (; lines < 20 && !text.empty(); ++lines) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const size_t count = count_fields(line);
    if (count < 3 || (words && *words != count)) return false;
    words = count;
  }
  return lines >= 3;
}

/// Returns whether the line is a sparse row such as "1 3:0.5 17:1".
bool is_libsvm(std::string_view line) {
  size_t pairs = 0;
  bool first = true;
  while (!line.empty()) {
    const size_t end = std::min(line.find(' '), line.size());
    const std::string_view word = line.substr(0, end);
    line.remove_prefix(std::min(line.size(), end + 1));
    if (word.empty()) continue;
    const size_t colon = word.find(':');
    if (first ? colon != word.npos
              : colon == word.npos || colon == 0 ||
                    !std::ranges::all_of(word.substr(0, colon),
                                         [](char c) { return c >= '0' && c <= '9'; })) {
      return false;
    }
    pairs += first ? 0 : 1;
    first = false;
  }
  return pairs > 0;
}

bool is_table_path(const fs::path& path) {
  static constexpr std::array<std::string_view, 12> kEndings = {
      ".csv", ".csv.gz", ".tsv",  ".tsv.gz",  ".tab", ".tab.gz",
      ".psv", ".psv.gz", ".data", ".data.gz", ".dat", ".dat.gz"};
  return has_ending(path.string(), kEndings);
}

Error job_file(const std::string& name) {
  return unsupported(name +
                     " looks like a job file; init writes one from data. Submit it: "
                     "trainyard submit '" +
                     name + "' --watch");
}

/// Returns a command that converts a JSON document, or a part of it such as "['data']", to CSV and
/// makes columns of the objects in its rows.
std::string flatten(const fs::path& path, const std::string& rows) {
  return "Flatten it into columns: python3 -c \"import json, pandas; pandas.json_normalize(" +
         rows + ").to_csv('" + converted_stem(path, ".csv") + ".csv', index=False)\"";
}

Error json_document(const fs::path& path, const JsonShape& shape) {
  const std::string name = path.string();
  const std::string load = "json.load(open('" + name + "'))";
  const auto convert = [&](std::string_view what, std::string_view read) {
    return foreign(path, ForeignKind{"", what, read});
  };
  switch (shape.layout) {
    case JsonLayout::kColumns:
      return convert("one JSON document with a member for each column", "read_json('{file}')");
    case JsonLayout::kIndex:
      return convert("one JSON document with a member for each row",
                     "read_json('{file}', orient='index')");
    case JsonLayout::kSplit:
      return convert("one JSON document with the members columns and data",
                     "read_json('{file}', orient='split')");
    case JsonLayout::kTable:
      return convert("one JSON document with the members schema and data",
                     "read_json('{file}', orient='table')");
    case JsonLayout::kRows:
      return convert("one JSON document with a list of rows", "read_json('{file}')");
    case JsonLayout::kMember:
      return foreign(path,
                     "one JSON document, whose member '" + shape.member + "' is a list of rows",
                     flatten(path, load + "['" + shape.member + "']"));
    case JsonLayout::kNestedRows:
      return foreign(path, "one JSON document with a list of rows with objects or lists in them",
                     flatten(path, load));
    case JsonLayout::kNestedLines:
      return foreign(path, "JSON lines with objects or lists in them",
                     flatten(path, "[json.loads(line) for line in open('" + name + "')]"));
    case JsonLayout::kLines:
    case JsonLayout::kNoTable:
      break;
  }
  return foreign(path, "JSON, but not a table",
                 "Expected an object on each line, such as {\"name\": 1} (JSON lines).");
}

Result<Sniffed> sniff_json(const fs::path& path, std::string_view text) {
  if (text.find("\"recipe\"") != text.npos && text.find("\"model\"") != text.npos) {
    return job_file(path.string());
  }
  JsonShape shape = find_json_shape(text);
  static constexpr std::array<std::string_view, 2> kLines = {".jsonl", ".ndjson"};
  if (shape.layout == JsonLayout::kNoTable && has_ending(path.string(), kLines)) {
    shape.layout = JsonLayout::kNestedLines;  // a single line
  }
  if (shape.layout != JsonLayout::kLines) return json_document(path, shape);
  const std::string_view line = text.substr(0, text.find('\n'));
  const Status read =
      visit_json_object(line, "line 1", [](const std::string&, const auto&) { return Status(); });
  if (!read.ok()) return json_document(path, shape);
  return Sniffed{DataKind::kJsonLines};
}

/// Refuses a table below lines of other text.
Error title_above(const fs::path& path, const TableShape& shape) {
  const std::string line = std::to_string(shape.table_line);
  return unsupported(path.string() + " begins with lines that are not a part of the table, whose " +
                     std::to_string(shape.fields) + " columns begin in line " + line +
                     ". Remove the lines above it: tail -n +" + line + " '" + path.string() +
                     "' > '" + path.stem().string() + ".table" + path.extension().string() + "'");
}

Result<Sniffed> sniff_text(const fs::path& path, std::string_view text, bool whole) {
  if (text.find('\0') != text.npos) {
    return foreign(path, "a binary file of an unknown kind",
                   "Expected CSV, JSON lines, text, a folder of images, NPY, NPZ, safetensors or "
                   "IDX files.");
  }
  const size_t last = text.rfind('\n');
  if (!whole && last != text.npos) text = text.substr(0, last + 1);
  if (const std::optional<size_t> bad = find_invalid_utf8(text);
      bad && (whole || *bad + 4 < text.size())) {
    return unsupported(
        path.string() + " is not UTF-8 (byte " + std::to_string(*bad) + " is " +
        quoted_value(text.substr(*bad, 1)) +
        "). Most such files are WINDOWS-1252; convert it: iconv -f WINDOWS-1252 -t UTF-8 '" +
        path.string() + "' > '" + path.stem().string() + ".utf8" + path.extension().string() + "'");
  }
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == text.npos) return unsupported(path.string() + " contains only whitespace.");
  const std::string_view content = text.substr(begin);
  static constexpr std::array<std::string_view, 2> kHtml = {".html", ".htm"};
  if (const ForeignKind* markup = find_markup(content, has_ending(path.string(), kHtml))) {
    return foreign(path, *markup);
  }
  if (const ForeignKind* script = find_table_script(content, path.string())) {
    return foreign(path, *script);
  }
  if (content.starts_with('{')) return sniff_json(path, content);
  if (content.starts_with('[') && !is_table_path(path)) {
    return json_document(path, find_json_shape(content));
  }
  if (is_libsvm(content.substr(0, content.find_first_of("\r\n"))))
    return Sniffed{DataKind::kLibsvm};

  const TableShape shape = find_table_shape(text);
  const bool table = is_table_path(path);
  if (table && shape.fields > 1 && shape.table_line > 1) return title_above(path, shape);
  const bool fits = shape.fields > 1 && shape.agreeing >= kAgreeingMin;
  const bool obvious =
      shape.fields > (shape.delimiter == ',' ? 2 : 1) && shape.records >= 3 && shape.agreeing == 1;
  if (table ? fits : obvious) return Sniffed{DataKind::kTable, shape.delimiter, shape.header};
  if (is_aligned_by_blanks(text)) {
    return foreign(
        path, "a table whose columns are separated by several spaces",
        "Convert it to CSV: " + by_pandas(path.string(), "read_csv('{file}', sep=r'\\s+')"));
  }
  if (!table) return Sniffed{DataKind::kText};
  if (shape.fields > 1) return Sniffed{DataKind::kTable, shape.delimiter, shape.header};
  if (has_quoted_lines(text)) {
    return unsupported(path.string() +
                       " has each line in quotes as a whole. Remove these quotes: sed -e "
                       "'s/^\"//' -e 's/\"\\r*$//' -e 's/\"\"/\"/g' '" +
                       path.string() + "' > '" + path.stem().string() + ".plain" +
                       path.extension().string() + "'");
  }
  return unsupported(path.string() +
                     " has a single column, or its fields are not separated by a comma, a "
                     "semicolon, a tab or a |. A table needs a column to predict, and at least one "
                     "to learn from.");
}

// --- folders and archives ----------------------------------------------------------------------

struct Names {
  std::vector<std::string> all;
  int64_t images = 0, texts = 0, arrays = 0;
  std::vector<std::string> tables;
  std::string other_images;  // the first image in an unsupported format
  std::map<std::string, int64_t> endings;
};

bool is_other_image(std::string_view ending) {
  static constexpr std::array<std::string_view, 6> kEndings = {".webp", ".gif",  ".bmp",
                                                               ".tif",  ".tiff", ".heic"};
  return std::ranges::find(kEndings, ending) != kEndings.end();
}

Result<Names> read_names(const fs::path& path) {
  Names names;
  ASSIGN_OR_RETURN(const std::unique_ptr<FileTree> tree, open_file_tree(path, path.string()));
  while (names.all.size() < kNamesMax) {
    ASSIGN_OR_RETURN(const bool more, tree->next());
    if (!more) break;
    const std::string& name = tree->path();
    names.all.push_back(name);
    const std::string ending = lower(fs::path(name).extension().string());
    ++names.endings[ending];
    names.images += is_image_path(name) ? 1 : 0;
    names.texts += is_text_path(name) ? 1 : 0;
    names.arrays += ending == ".npy" ? 1 : 0;
    if (names.other_images.empty() && is_other_image(ending)) names.other_images = name;
    if (is_table_path(name) || ending == ".jsonl" || ending == ".parquet" || ending == ".xlsx") {
      names.tables.push_back(name);
    }
  }
  return names;
}

/// Returns whether the .txt files are in one folder per class.
bool in_class_folders(const Names& names) {
  std::vector<ListedFile> files;
  for (const std::string& name : names.all) {
    if (is_text_path(name)) files.emplace_back().path = name;
  }
  ListedFiles pointers;
  for (ListedFile& file : files) pointers.push_back(&file);
  const size_t root = root_of(pointers, /*partitioned=*/true, /*in_folders=*/true);
  ShortPaths paths;
  for (const ListedFile* file : pointers)
    paths.push_back(std::string_view(file->path).substr(root));
  if (!split_parts(pointers, paths, "data").ok()) return false;
  if (!label_by_folder(pointers, paths, "data", "").ok()) return false;
  return find_classes(files_of(pointers, ListedFile::Part::kTrain), "text").ok();
}

/// Returns the command that unpacks an archive which contains_files() recognizes.
std::string unpack_command(const fs::path& path) {
  const bool zip = lower(path.extension().string()) == ".zip";
  return (zip ? "unzip '" : "tar xf '") + path.string() + "'";
}

Result<Sniffed> sniff_names(const fs::path& path, bool folder) {
  ASSIGN_OR_RETURN(const Names names, read_names(path));
  const std::string& shown = path.string();
  const auto holds = [&](std::string_view ending) {
    return std::ranges::any_of(names.all,
                               [&](const std::string& name) { return name.ends_with(ending); });
  };
  if (names.all.empty()) {
    return unsupported(shown + (folder ? " is an empty folder." : " is an archive without files."));
  }
  if (!folder && holds("xl/workbook.xml")) return foreign(path, excel_kind());
  if (!folder && holds("content.xml") && holds("mimetype"))
    return foreign(path, spreadsheet_kind());
  if (!folder && holds("word/document.xml")) {
    return foreign(path, "a Word document", "Save its table as CSV, or its text as plain text.");
  }
  if (!folder && holds("/data.pkl")) {
    return foreign(path, "a PyTorch file",
                   "Store its tensors as NPZ: numpy.savez('data.npz', inputs=x.numpy(), "
                   "targets=y.numpy()).");
  }
  if (!folder && names.arrays > 0) return Sniffed{DataKind::kArrays};
  if (names.images > 0 && names.images >= names.texts) return Sniffed{DataKind::kImages};
  if (holds("data_batch_1.bin") || (holds("train.bin") && holds("fine_label_names.txt"))) {
    return Sniffed{DataKind::kCifar};
  }
  const auto is_idx = [](const std::string& name) {
    return name.find("-idx") != name.npos || name.find(".idx") != name.npos;
  };
  if (folder && std::ranges::any_of(names.all, is_idx)) return Sniffed{DataKind::kIdx};
  if (folder && names.arrays > 1) return Sniffed{DataKind::kNpy};
  if (!names.tables.empty()) {
    const auto train = std::ranges::find_if(
        names.tables, [](const std::string& name) { return name.find("train") != name.npos; });
    const std::string first = train == names.tables.end() ? names.tables.front() : *train;
    return unsupported(
        shown + (folder ? " is a folder with " : " is an archive with ") +
        (names.tables.size() == 1 ? "a table" : std::to_string(names.tables.size()) + " tables") +
        ". " +
        (folder ? "Name one of its files: trainyard init '" + (path / first).string() + "'"
                : "Unpack it, and name the file: " + unpack_command(path) + " && trainyard init '" +
                      first + "'"));
  }
  if (names.texts > 0) {
    return Sniffed{in_class_folders(names) ? DataKind::kTextFiles : DataKind::kText};
  }
  std::vector<std::string> endings;
  for (const auto& [ending, count] : names.endings) {
    endings.push_back(std::to_string(count) + " " +
                      (ending.empty() ? "without an ending" : ending));
    if (endings.size() == 5) break;
  }
  return unsupported(shown + (folder ? " is a folder" : " is an archive") +
                     " without data that Trainyard reads. Expected JPEG or PNG images, or .txt "
                     "files, in a folder for each class; it has " +
                     joined(endings, " and ") + "." +
                     (names.other_images.empty()
                          ? ""
                          : " ImageMagick converts images: mogrify -format png '" +
                                (path / names.other_images).string() + "'"));
}

}  // namespace

Error unsupported(std::string message) {
  return make_error(ErrorCode::kInvalidArgument, "DATA_UNSUPPORTED", std::move(message));
}

Result<Sniffed> sniff(const fs::path& path) {
  std::error_code ec;
  const fs::file_status status = fs::status(path, ec);
  if (!fs::exists(status)) {
    return make_error(ErrorCode::kNotFound, "FILE_NOT_FOUND",
                      path.string() + ": there is no such file or folder");
  }
  if (fs::is_directory(status)) return sniff_names(path, /*folder=*/true);
  const std::string name = path.string();
  ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source, open_file_source(path, name));
  std::string start(kStartBytes, '\0');
  ASSIGN_OR_RETURN(const size_t size, read_full(*source, start));
  start.resize(size);
  if (start.empty()) return unsupported(name + " is empty (0 bytes).");
  ASSIGN_OR_RETURN(const bool archive, contains_files(path, name));
  if (archive) {
    const Result<Sniffed> found = sniff_names(path, /*folder=*/false);
    // Files compressed by xz or zstd may be a single file instead of an archive.
    if (found.ok() || found.error().reason == "DATA_UNSUPPORTED" || start.starts_with("PK")) {
      return found;
    }
  }
  if (const ForeignKind* kind = find_foreign_kind(start)) return foreign(path, *kind);
  if (start.starts_with("\x93NUMPY")) return Sniffed{DataKind::kNpy};
  if (has_ending(name, std::array<std::string_view, 1>{".safetensors"})) {
    return Sniffed{DataKind::kArrays};
  }
  const std::string_view text = start;
  if (text.size() > 4 && text[0] == 0 && text[1] == 0 && text[2] >= 8 && text[2] <= 14 &&
      text[3] >= 1 && text[3] <= 4) {
    return Sniffed{DataKind::kIdx};
  }
  if (has_ending(name, std::array<std::string_view, 2>{".yaml", ".yml"})) {
    return job_file(name);
  }
  return sniff_text(path, text, size < kStartBytes);
}

}  // namespace trainyard::init
