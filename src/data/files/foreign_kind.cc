#include "src/data/files/foreign_kind.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "src/base/text.h"

namespace trainyard {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kToUtf8 =
    "Convert it to UTF-8: iconv -f UTF-16 -t UTF-8 '{file}' > '{stem}.utf8{ending}'";
constexpr std::string_view kImagesHint =
    "To train on images, name a folder that has a folder of them for each class.";
constexpr std::string_view kPickle =
    "A pickle can run any program when it is read. If you trust it, convert it to CSV: python3 -c "
    "\"import pandas; pandas.read_pickle('{file}').to_csv('{stem}.csv', index=False)\"";
constexpr std::string_view kRObject =
    "Convert it to CSV: Rscript -e \"write.csv(readRDS('{file}'), '{stem}.csv', row.names=FALSE)\"";
constexpr std::string_view kRWorkspace =
    "Convert its first object to CSV: Rscript -e \"e <- new.env(); n <- load('{file}', e); "
    "write.csv(e[[n[1]]], '{stem}.csv', row.names=FALSE)\"";
constexpr std::string_view kAccess =
    "List its tables: mdb-tables '{file}'. Export one as CSV: mdb-export '{file}' TABLE > "
    "TABLE.csv";
constexpr std::string_view kNetCdf =
    "Convert it to CSV: python3 -c \"import xarray; "
    "xarray.open_dataset('{file}').to_dataframe().to_csv('{stem}.csv')\"";

constexpr auto kForeignKinds = std::to_array<ForeignKind>({
    {"\xff\xfe", "text in UTF-16", "", kToUtf8},
    {"\xfe\xff", "text in UTF-16", "", kToUtf8},
    {"PAR1", "a Parquet file", "read_parquet('{file}')"},
    {"ARROW1", "a Feather (Arrow) file", "read_feather('{file}')"},
    {"FEA1", "a Feather file", "read_feather('{file}')"},
    {"ORC", "an ORC file", "read_orc('{file}')"},
    {"\x89HDF", "an HDF5 file", "read_hdf('{file}')"},
    {"\xd0\xcf\x11\xe0", "an old Excel file (.xls)", "read_excel('{file}')"},
    {"PK\x03\x04", "a ZIP archive, as Excel's files are", "",
     "Unpack it: unzip '{file}'. If it is an Excel file, convert it to CSV: python3 -c \"import "
     "pandas; pandas.read_excel('{file}').to_csv('{stem}.csv', index=False)\""},
    {"SQLite format 3", "an SQLite database", "",
     "List its tables: sqlite3 '{file}' .tables. Export one as CSV: sqlite3 -header -csv '{file}' "
     "'select * from TABLE' > TABLE.csv"},
    {"\0\1\0\0Standard Jet DB"sv, "an Access database", "", kAccess},
    {"\0\1\0\0Standard ACE DB"sv, "an Access database", "", kAccess},
    // This is the first half of the 32 bytes with which these files begin.
    {"\0\0\0\0\0\0\0\0\0\0\0\0\xc2\xea\x81\x60"sv, "a SAS table (.sas7bdat)",
     "read_sas('{file}', format='sas7bdat')"},
    {"HEADER RECORD*******LIBRARY HEADER RECORD", "a SAS transport file (.xpt)",
     "read_sas('{file}', format='xport')"},
    {"<stata_dta>", "a Stata file (.dta)", "read_stata('{file}')"},
    {"\x71\1\1\0"sv, "a Stata file (.dta)", "read_stata('{file}')"},
    {"\x71\2\1\0"sv, "a Stata file (.dta)", "read_stata('{file}')"},
    {"\x72\1\1\0"sv, "a Stata file (.dta)", "read_stata('{file}')"},
    {"\x72\2\1\0"sv, "a Stata file (.dta)", "read_stata('{file}')"},
    {"\x73\1\1\0"sv, "a Stata file (.dta)", "read_stata('{file}')"},
    {"\x73\2\1\0"sv, "a Stata file (.dta)", "read_stata('{file}')"},
    {"$FL2", "an SPSS file (.sav)", "read_spss('{file}')"},
    {"$FL3", "an SPSS file (.zsav)", "read_spss('{file}')"},
    {"X\n\0\0\0"sv, "an object of R (.rds)", "", kRObject},
    {"RDX2\n", "a workspace of R (.RData)", "", kRWorkspace},
    {"RDX3\n", "a workspace of R (.RData)", "", kRWorkspace},
    {"CDF\1", "a netCDF file", "", kNetCdf},
    {"CDF\2", "a netCDF file", "", kNetCdf},
    {"\x80\x02", "a Python pickle", "", kPickle},
    {"\x80\x03", "a Python pickle", "", kPickle},
    {"\x80\x04", "a Python pickle", "", kPickle},
    {"\x80\x05", "a Python pickle", "", kPickle},
    {"Obj\x01", "an Avro file", "", "Convert it to CSV or JSON lines."},
    {"MATLAB 5.0", "a MATLAB file", "",
     "Store its arrays as NPZ: numpy.savez('data.npz', inputs=x, targets=y)."},
    {"%PDF", "a PDF document", "",
     "Expected a table, images, text or arrays. Extract its text: pdftotext -layout '{file}' "
     "'{stem}.txt'"},
    {"\xff\xd8\xff", "a single JPEG image", "", kImagesHint},
    {"\x89PNG", "a single PNG image", "", kImagesHint},
    {"GIF8", "a GIF image", "", "Expected a folder of JPEG or PNG files for each class."},
    {"BZh", "a bzip2 file", "", "Decompress it, and use the result: bunzip2 -k '{file}'"},
    {"\xfd"
     "7zXZ",
     "an xz file that is not an archive of files", "",
     "Decompress it, and use the result: unxz -k '{file}'"},
    {"\x28\xb5\x2f\xfd", "a zstd file that is not an archive of files", "",
     "Decompress it, and use the result: unzstd '{file}'"},
    {"7z\xbc\xaf", "a 7-Zip archive", "", "Unpack it, and use the result: 7z x '{file}'"},
    {"Rar!", "a RAR archive", "", "Unpack it, and use the result: unrar x '{file}'"},
    {"RIFF", "a media file (RIFF)", "", "Expected a table, JPEG or PNG images, text or arrays."},
});

constexpr ForeignKind kTablePage = {"", "an HTML page with a table", "read_html('{file}')[0]"};
constexpr ForeignKind kPage = {
    "", "a page in HTML", "",
    "A download may have stored a web page in place of the file: use the link to the data itself."};
constexpr ForeignKind kXml = {"", "an XML document", "read_xml('{file}')"};

/// Beginnings of pages and of parts of them, as DataFrame.to_html() writes them.
constexpr auto kHtmlStarts = std::to_array<std::string_view>(
    {"<!doctype html", "<html", "<head>", "<body", "<table", "<div", "<style", "<script", "<meta"});

std::string filled(std::string_view text, const std::string& file) {
  const std::string ending = std::filesystem::path(file).extension().string();
  const bool overwrites = !ending.empty() && text.find("{stem}" + ending) != text.npos;
  const std::pair<std::string_view, std::string> parts[] = {
      {"{file}", file},
      {"{stem}", converted_stem(file, overwrites ? ending : "/")},
      {"{ending}", ending}};
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

std::string converted_stem(const std::filesystem::path& file, std::string_view ending) {
  return file.stem().string() + (file.extension() == ending ? "-converted" : "");
}

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

const ForeignKind* find_markup(std::string_view text, bool named_html) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == text.npos || (text[begin] != '<' && !named_html)) return nullptr;
  const std::string start = lower(text.substr(begin, size_t{64} << 10));
  const bool html = named_html || start.find("<html") != start.npos ||
                    std::ranges::any_of(
                        kHtmlStarts, [&](std::string_view tag) { return start.starts_with(tag); });
  const bool xml = start.starts_with("<?xml") || start.starts_with("<!doctype");
  if (!html) return xml ? &kXml : nullptr;
  return lower(text).find("<table") == std::string::npos ? &kPage : &kTablePage;
}

const ForeignKind* find_document(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  const std::string start = lower(text.substr(begin, 16));
  const auto begins = [&](std::string_view tag) { return start.starts_with(tag); };
  return begins("<!doctype html") || begins("<html") || begins("<?xml") ? find_markup(text)
                                                                        : nullptr;
}

const ForeignKind* find_table_script(std::string_view text, std::string_view file) {
  static constexpr ForeignKind kArff = {
      "", "an ARFF file of Weka", "",
      "Convert it to CSV: python3 -c \"import pandas; from scipy.io import arff; t = "
      "pandas.DataFrame(arff.loadarff('{file}')[0]); t.apply(lambda c: c.str.decode('utf-8') if "
      "c.dtype == object else c).to_csv('{stem}.csv', index=False)\""};
  static constexpr ForeignKind kSql = {
      "", "an SQL script", "",
      "Run it, and export a table as CSV: sqlite3 '{stem}.db' < '{file}'; sqlite3 -header -csv "
      "'{stem}.db' 'select * from TABLE' > TABLE.csv"};
  const std::string name = lower(file);
  if (name.ends_with(".arff") && lower(text).find("@relation") != std::string::npos) return &kArff;
  return name.ends_with(".sql") ? &kSql : nullptr;
}

const ForeignKind& excel_kind() {
  static constexpr ForeignKind kExcel = {"", "an Excel file", "read_excel('{file}')"};
  return kExcel;
}

const ForeignKind& spreadsheet_kind() {
  static constexpr ForeignKind kSpreadsheet = {"", "an OpenDocument spreadsheet",
                                               "read_excel('{file}')"};
  return kSpreadsheet;
}

std::string remedy_of(const ForeignKind& kind, const std::string& file) {
  if (kind.reader.empty()) return filled(kind.remedy, file);
  return "Convert it to CSV: " + by_pandas(file, kind.reader) +
         ", or upload it from Python: trainyard.upload('" + file + "', target='COLUMN')";
}

std::string by_pandas(const std::string& file, std::string_view read, std::string_view write) {
  return "python3 -c \"import pandas; pandas." + filled(read, file) + "." + filled(write, file) +
         "\"";
}

}  // namespace trainyard
