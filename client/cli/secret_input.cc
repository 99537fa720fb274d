#include "client/cli/secret_input.h"

#include <termios.h>
#include <unistd.h>

namespace trainyard::cli {
namespace {

constexpr char kCtrlC = 3;
constexpr char kCtrlD = 4;
constexpr char kBackspace = 8;
constexpr char kDelete = 127;
constexpr size_t kSecretCharsMax = 4096;

/// Switches the echo of stdin off, and gives Ctrl-C to the reader as a character: as a signal it
/// would end the program and leave the terminal without echo.
class Quiet {
 public:
  Quiet() {
    if (::tcgetattr(STDIN_FILENO, &before_) != 0) return;
    termios quiet = before_;
    quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON | ISIG);
    quiet.c_cc[VMIN] = 1;
    quiet.c_cc[VTIME] = 0;
    is_set_ = ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &quiet) == 0;
  }
  ~Quiet() {
    if (is_set_) ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &before_);
  }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
  bool is_set() const { return is_set_; }

 private:
  termios before_{};
  bool is_set_ = false;
};

}  // namespace

Result<std::string> ask_secret(Session& session, const std::string& question) {
  std::string secret;
  char c = 0;
  {
    const Quiet quiet;
    if (!quiet.is_set()) {
      return make_error(ErrorCode::kFailedPrecondition, "NO_TERMINAL",
                        "the terminal cannot be switched to reading without echo");
    }
    session.err().write(question);
    while (::read(STDIN_FILENO, &c, 1) == 1 && c != '\n' && c != '\r' && c != kCtrlC &&
           c != kCtrlD && secret.size() < kSecretCharsMax) {
      if (c != kBackspace && c != kDelete) {
        secret += c;
      } else if (!secret.empty()) {
        secret.pop_back();
      }
    }
  }
  session.err().write("\n");
  if (c == kCtrlC) return make_error(ErrorCode::kCancelled, "INTERRUPTED", "interrupted");
  return secret;
}

}  // namespace trainyard::cli
