#include "src/data/tokenizers/stored_files.h"

#include <zlib.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "src/base/base64.h"
#include "src/base/text.h"
#include "src/data/tokenizers/file_fields.h"
#include "src/data/tokenizers/token_model.h"

namespace trainyard {
namespace {

std::string compress_text(const std::string& text) {
  uLongf size = compressBound(text.size());
  std::string out(size, '\0');
  const int result = compress2(reinterpret_cast<Bytef*>(out.data()), &size,
                               reinterpret_cast<const Bytef*>(text.data()), text.size(), 6);
  TRAINYARD_CHECK(result == Z_OK, "zlib failed");
  out.resize(size);
  return out;
}

std::optional<std::string> expand_text(const std::string& bytes, int64_t size) {
  std::string text(static_cast<size_t>(size), '\0');
  uLongf written = text.size();
  const int result = uncompress(reinterpret_cast<Bytef*>(text.data()), &written,
                                reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  if (result != Z_OK || written != text.size()) return std::nullopt;
  return text;
}

}  // namespace

nlohmann::json stored_files(const TokenizerFiles& files) {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [name, text] : files) {
    json[name] = {{"bytes", text.size()}, {"zlib", base64_encode(compress_text(text))}};
  }
  return json;
}

Result<TokenizerFiles> read_stored_files(const nlohmann::json& json) {
  if (!json.is_object() || json.size() > kTokenizerFilesMax) {
    return tokenizer_error("files", "expected an object with at most " +
                                        std::to_string(kTokenizerFilesMax) + " files");
  }
  TokenizerFiles files;
  for (const auto& item : json.items()) {
    const std::string path = "files." + quoted_value(item.key());
    FileFields fields(item.value(), path);
    const int64_t size = fields.integer("bytes", 0, 0, kTokenizerFileBytesMax);
    const std::optional<std::string> bytes = base64_decode(fields.text("zlib"));
    if (Status s = fields.finish(); !s.ok()) return std::move(s).error();
    // Deflate makes a text at most 1032 times smaller.
    const bool possible = bytes && size / 1032 <= static_cast<int64_t>(bytes->size());
    std::optional<std::string> text = possible ? expand_text(*bytes, size) : std::nullopt;
    if (!text) return tokenizer_error(path, "is not a compressed file");
    files[item.key()] = *std::move(text);
  }
  return files;
}

}  // namespace trainyard
