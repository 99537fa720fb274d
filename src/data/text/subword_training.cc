#include "src/data/text/subword_training.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

#include "src/base/child_process.h"
#include "src/base/handle.h"
#include "src/base/text.h"
#include "src/data/limits.h"
#include "src/data/problems.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

constexpr size_t kSentenceBytes = 4096;
constexpr size_t kSentencesBytesMax = size_t{16} << 20;
constexpr size_t kMessageBytesMax = 4096;

/// Returns whether `c` may not occur in a piece: SentencePiece reserves these characters or cannot
/// read them.
bool ends_sentence(char32_t c) {
  return c < 0x20 || c == 0x2581 || c == 0x2585 || (c & 0xfffe) == 0xfffe ||
         (c >= 0xfdd0 && c <= 0xfdef);
}

Error failed(const std::string& what) {
  return make_error(ErrorCode::kInternal, "TOKENIZER_FAILED",
                    "the tokenizer could not be trained: " + what);
}

Result<UniqueFd> memory_file(const char* name) {
  UniqueFd file(::memfd_create(name, MFD_CLOEXEC));
  if (!file) return failed(std::string("memfd_create: ") + std::strerror(errno));
  return file;
}

Status write_all(int file, std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = ::pwrite(file, text.data() + at, text.size() - at, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return failed(std::string("writing its text: ") + std::strerror(errno));
    at += static_cast<size_t>(n);
  }
  return {};
}

Result<std::string> read_all(int file, size_t bytes_max) {
  struct stat info {};
  if (::fstat(file, &info) != 0) return failed(std::string("fstat: ") + std::strerror(errno));
  std::string text(std::min(static_cast<size_t>(info.st_size), bytes_max), '\0');
  size_t at = 0;
  while (at < text.size()) {
    const ssize_t n = ::pread(file, text.data() + at, text.size() - at, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    at += static_cast<size_t>(n);
  }
  text.resize(at);
  return text;
}

/// SentencePiece reports the minimum number of pieces: "... required_chars. 300 vs 316. ...".
std::optional<int64_t> pieces_needed(std::string_view message) {
  if (message.find("required_chars") == std::string_view::npos) return std::nullopt;
  const size_t at = message.find(" vs ");
  if (at == std::string_view::npos) return std::nullopt;
  return std::strtoll(std::string(message.substr(at + 4)).c_str(), nullptr, 10);
}

}  // namespace

void SentenceSample::add(std::string_view text) {
  size_t begin = 0, end = 0;  // the current sentence in `text`
  std::string_view rest = text;
  while (!rest.empty()) {
    const char32_t c = take_code_point(rest);
    const size_t next = text.size() - rest.size();
    const bool cut = ends_sentence(c);
    if (cut || next - begin > kSentenceBytes) {
      add_sentence(text.substr(begin, end - begin));
      begin = cut ? next : end;
    }
    end = next;
  }
  add_sentence(text.substr(begin));
}

void SentenceSample::add_sentence(std::string_view sentence) {
  if (sentence.empty()) return;
  if (seen_++ % stride_ != 0) return;
  kept_ += sentence;
  kept_ += '\n';
  if (kept_.size() <= kSentencesBytesMax) return;
  std::string half;
  bool take = true;
  for (std::string_view rest = kept_; !rest.empty(); take = !take) {
    const size_t size = rest.find('\n') + 1;
    if (take) half += rest.substr(0, size);
    rest.remove_prefix(size);
  }
  kept_ = std::move(half);
  stride_ *= 2;
}

std::filesystem::path tokenizer_program() {
  if (const char* path = std::getenv("TRAINYARD_TOKENIZER_PROGRAM"); path != nullptr && *path) {
    return path;
  }
  std::error_code ignored;  // without /proc the program is then reported as missing
  return fs::read_symlink("/proc/self/exe", ignored).parent_path() / "trainyard-tokenizer";
}

Result<std::string> train_subwords(TokenizerKind kind, const std::string& sentences,
                                   int64_t pieces_max, const std::string& field) {
  const fs::path program = tokenizer_program();
  std::error_code ec;
  if (!fs::exists(program, ec)) {
    return make_error(ErrorCode::kFailedPrecondition, "TOKENIZER_UNAVAILABLE",
                      field + ".tokenizer: " + std::string(name_of(kind)) + " needs " +
                          program.string() +
                          ", which is missing; build or install it with SentencePiece, or use "
                          "word, char or byte");
  }
  ASSIGN_OR_RETURN(const UniqueFd in, memory_file("sentences"));
  ASSIGN_OR_RETURN(const UniqueFd out, memory_file("model"));
  ASSIGN_OR_RETURN(const UniqueFd err, memory_file("messages"));
  if (Status s = write_all(in.get(), sentences); !s.ok()) return std::move(s).error();
  const std::string name = program.string();
  const std::optional<int> status =
      run_program({.path = name,
                   .arguments = {name, std::string(name_of(kind)), std::to_string(pieces_max)},
                   .fds = {in.get(), out.get(), err.get()}});
  if (!status) return failed(name + ": " + std::strerror(errno));
  if (WIFEXITED(*status) && WEXITSTATUS(*status) == 0) {
    return read_all(out.get(), static_cast<size_t>(kSchemaBytesMax));
  }
  ASSIGN_OR_RETURN(const std::string message, read_all(err.get(), kMessageBytesMax));
  if (const std::optional<int64_t> needed = pieces_needed(message)) {
    return dataset_error(field + ".vocabulary_size",
                         std::to_string(pieces_max) +
                             " is too few for the text's characters and the 256 bytes, expected " +
                             std::to_string(*needed) + " or more");
  }
  if (WIFSIGNALED(*status))
    return failed("it ended by signal " + std::to_string(WTERMSIG(*status)));
  return failed(message);
}

}  // namespace trainyard
