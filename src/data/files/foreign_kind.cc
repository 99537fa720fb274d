#include "src/data/files/foreign_kind.h"

#include <array>
#include <filesystem>
#include <utility>

#include "src/base/text.h"

namespace trainyard {
namespace {

constexpr std::string_view kUnpack = "Decompress it, and use the result.";
constexpr std::string_view kToUtf8 =
    "Convert it to UTF-8: iconv -f UTF-16 -t UTF-8 '{file}' > '{stem}.utf8{ending}'";
constexpr std::string_view kImagesHint =
    "To train on images, name a folder that has a folder of them for each class.";

constexpr auto kForeignKinds = std::to_array<ForeignKind>({
    {"\xff\xfe", "text in UTF-16", "", kToUtf8},
    {"\xfe\xff", "text in UTF-16", "", kToUtf8},
    {"PAR1", "a Parquet file", "read_parquet('{file}')"},
    {"ARROW1", "a Feather (Arrow) file", "read_feather('{file}')"},
    {"ORC", "an ORC file", "read_orc('{file}')"},
    {"\x89HDF", "an HDF5 file", "read_hdf('{file}')"},
    {"\xd0\xcf\x11\xe0", "an old Excel file (.xls)", "read_excel('{file}')"},
    {"PK\x03\x04", "a ZIP archive, as Excel's files are", "",
     "Unpack it, or save the sheet as CSV."},
    {"SQLite format 3", "an SQLite database", "",
     "Export the table as CSV: "
     "sqlite3 -header -csv '{file}' 'select * from TABLE' > TABLE.csv"},
    {"\x80\x02", "a Python pickle", "read_pickle('{file}')"},
    {"\x80\x03", "a Python pickle", "read_pickle('{file}')"},
    {"\x80\x04", "a Python pickle", "read_pickle('{file}')"},
    {"\x80\x05", "a Python pickle", "read_pickle('{file}')"},
    {"Obj\x01", "an Avro file", "", "Convert it to CSV or JSON lines."},
    {"MATLAB 5.0", "a MATLAB file", "",
     "Store its arrays as NPZ: numpy.savez('data.npz', inputs=x, targets=y)."},
    {"%PDF", "a PDF document", "", "Expected a table, images, text or arrays."},
    {"\xff\xd8\xff", "a single JPEG image", "", kImagesHint},
    {"\x89PNG", "a single PNG image", "", kImagesHint},
    {"GIF8", "a GIF image", "", "Expected a folder of JPEG or PNG files for each class."},
    {"BZh", "a bzip2 file", "", kUnpack},
    {"\xfd"
     "7zXZ",
     "an xz file that is not an archive of files", "", kUnpack},
    {"\x28\xb5\x2f\xfd", "a zstd file that is not an archive of files", "", kUnpack},
    {"7z\xbc\xaf", "a 7-Zip archive", "", kUnpack},
    {"Rar!", "a RAR archive", "", kUnpack},
    {"RIFF", "a media file (RIFF)", "", "Expected a table, JPEG or PNG images, text or arrays."},
});

std::string filled(std::string_view text, const std::string& file) {
  const std::filesystem::path path(file);
  const std::pair<std::string_view, std::string> parts[] = {
      {"{file}", file}, {"{stem}", path.stem().string()}, {"{ending}", path.extension().string()}};
  std::string out;
  while (!text.empty()) {
    bool is_part = false;
    for (const auto& [name, value] : parts) {
      if (!text.starts_with(name)) continue;
      out += value;
      text.remove_prefix(name.size());
      is_part = true;
      break;
    }
    if (is_part) continue;
    out += text.front();
    text.remove_prefix(1);
  }
  return out;
}

}  // namespace

const ForeignKind* find_foreign_kind(std::string_view start) {
  for (const ForeignKind& kind : kForeignKinds) {
    if (!start.starts_with(kind.magic)) continue;
    // `start` may end within a character, so its last line is not checked.
    const bool text =
        start.find('\0') == std::string_view::npos && is_utf8(start.substr(0, start.rfind('\n')));
    return text ? nullptr : &kind;
  }
  return nullptr;
}

std::string remedy_of(const ForeignKind& kind, const std::string& file) {
  if (kind.reader.empty()) return filled(kind.remedy, file);
  return "Convert it to CSV: " + by_pandas(file, kind.reader);
}

std::string by_pandas(const std::string& file, std::string_view read, std::string_view write) {
  return "python3 -c \"import pandas; pandas." + filled(read, file) + "." + filled(write, file) +
         "\"";
}

}  // namespace trainyard
