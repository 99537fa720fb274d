#include "client/init/sniff.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "src/base/folder_files.h"
#include "src/base/join.h"
#include "src/base/text.h"
#include "src/data/dataset.h"
#include "src/data/files/byte_source.h"
#include "src/data/files/class_folders.h"
#include "src/data/files/file_tree.h"
#include "src/data/files/foreign_kind.h"
#include "src/data/files/text_files.h"
#include "src/data/table/column_facts.h"
#include "src/data/table/csv_cell.h"
#include "src/data/table/csv_reader.h"
#include "src/data/table/json_lines.h"
#include "src/data/table/separators.h"

namespace trainyard::init {
namespace {

namespace fs = std::filesystem;

constexpr size_t kStartBytes = size_t{1} << 20;  // read to recognize the kind of a file
constexpr size_t kRecordsExamined = 200;
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

bool starts_with_tag(std::string_view text) {
  const std::string start = lower(text.substr(0, 256));
  return start.starts_with("<!doctype") || start.starts_with("<html") || start.starts_with("<?xml");
}

/// Returns the shape of the file's records if `delimiter` separates their fields.
TableShape shape_by(char delimiter, std::string_view text) {
  const std::unique_ptr<ByteSource> source = open_plain_source(text);
  CsvReader reader(*source, delimiter, "data");
  std::vector<std::string_view> fields;
  std::map<size_t, size_t> sizes;
  TableShape shape;
  shape.delimiter = delimiter;
  while (shape.records < kRecordsExamined) {
    const Result<bool> more = reader.next(fields);
    if (more.ok() && !*more) break;
    ++shape.records;
    if (!more.ok()) break;  // a quote that is malformed with this delimiter
    ++sizes[fields.size()];
  }
  const auto most = std::ranges::max_element(sizes, {}, [](const auto& s) { return s.second; });
  if (most == sizes.end()) return shape;
  shape.fields = most->first;
  shape.agreeing = static_cast<double>(most->second) / static_cast<double>(shape.records);
  return shape;
}

/// Returns whether the first record holds column names. It certainly does if a text is above a
/// number. Otherwise a number or a repeated text in it means that it does not.
bool has_header(const TableShape& shape, std::string_view text) {
  const std::unique_ptr<ByteSource> source = open_plain_source(text);
  CsvReader reader(*source, shape.delimiter, "data");
  const CellReader cells(std::vector<std::string>{});
  std::vector<std::string_view> fields;
  const auto next = [&] {
    const Result<bool> more = reader.next(fields);
    return more.ok() && *more;
  };
  if (!next()) return true;
  std::set<std::string> seen;
  std::vector<Cell::Kind> first;
  bool names = true;
  // the text may end within the last field
  if (!text.ends_with('\n') && fields.size() > 1) fields.pop_back();
  for (const std::string_view field : fields) {
    first.push_back(cells.read(field).kind);
    // pandas writes its index column without a name.
    const bool index = field.empty() && first.size() == 1 && fields.size() > 1;
    names &= index || (first.back() == Cell::Kind::kText && seen.emplace(field).second);
  }
  if (!next()) return names;
  for (size_t i = 0; i < std::min(first.size(), fields.size()); ++i) {
    if (first[i] == Cell::Kind::kText && cells.read(fields[i]).is_number()) return true;
  }
  return names;
}

/// Returns whether the lines are columns of numbers, separated by any number of spaces.
bool is_aligned_by_blanks(std::string_view text) {
  std::optional<size_t> words;
  size_t lines = 0;
  for (; lines < 20 && !text.empty(); ++lines) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const auto count = static_cast<size_t>(count_words(line));
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

Error json_document(const fs::path& path) {
  return foreign(path, "one JSON document",
                 "Store an object on each line (JSON lines): " +
                     by_pandas(path.string(), "read_json('{file}')",
                               "to_json('{stem}.jsonl', orient='records', lines=True)"));
}

Error job_file(const std::string& name) {
  return unsupported(name +
                     " looks like a job file; init writes one from data. Submit it: "
                     "trainyard submit '" +
                     name + "' --watch");
}

Result<Sniffed> sniff_json(const fs::path& path, std::string_view text) {
  if (text.find("\"recipe\"") != text.npos && text.find("\"model\"") != text.npos) {
    return job_file(path.string());
  }
  const std::string_view line = text.substr(0, text.find('\n'));
  bool nested = false;
  const Status read = visit_json_object(line, "line 1", [&](const std::string&, const auto& m) {
    nested |= m.kind == JsonMember::Kind::kNested;
    return Status();
  });
  if (!read.ok()) return json_document(path);
  if (nested) {
    return foreign(path, "JSON lines with objects or lists in them",
                   "Flatten them into columns: python3 -c \"import json, pandas; "
                   "pandas.json_normalize([json.loads(l) for l in open('" +
                       path.string() + "')]).to_csv('" + path.stem().string() +
                       ".csv', index=False)\"");
  }
  return Sniffed{DataKind::kJsonLines};
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
  if (starts_with_tag(content)) {
    return foreign(path, "a page in HTML or XML",
                   "A download may have stored a web page in place of the file: use the link to "
                   "the data itself.");
  }
  if (content.starts_with('{')) return sniff_json(path, content);
  if (content.starts_with('[') && !is_table_path(path)) return json_document(path);
  if (is_libsvm(content.substr(0, content.find_first_of("\r\n"))))
    return Sniffed{DataKind::kLibsvm};

  const TableShape shape = find_table_shape(text);
  const bool table = is_table_path(path);
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
  if (!folder && holds("xl/workbook.xml")) {
    return foreign(
        path, "an Excel file",
        "Store the sheet as CSV, or: " + by_pandas(path.string(), "read_excel('{file}')"));
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
                : "Unpack it, and name the file: trainyard init '" + first + "'"));
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

TableShape find_table_shape(std::string_view text) {
  TableShape best;
  for (const Separator& separator : kSeparators) {
    const TableShape shape = shape_by(separator.character, text);
    const auto rank = [](const TableShape& s) {
      return std::pair(s.fields > 1 ? s.agreeing : -1, s.fields);
    };
    if (best.records == 0 || rank(shape) > rank(best)) best = shape;
  }
  best.header = has_header(best, text);
  return best;
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
