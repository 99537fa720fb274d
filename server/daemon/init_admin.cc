#include "server/daemon/init_admin.h"

#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "server/people/random_token.h"
#include "server/store/store.h"
#include "src/base/person_name.h"
#include "src/base/sha256.h"
#include "src/base/text.h"

namespace trainyard::server {
namespace {

constexpr const char* kTokenName = "init-admin";
constexpr int64_t kValidUs = int64_t{90} * 24 * 3600 * 1'000'000;

/// Gives up root's rights for those of the folder's owner.
Status become_owner_of(const std::filesystem::path& state_dir) {
  if (::geteuid() != 0) return {};
  struct stat st {};
  if (::stat(state_dir.c_str(), &st) != 0) {
    return make_error(ErrorCode::kFailedPrecondition, "STATE_DIR_MISSING",
                      "state_dir: " + state_dir.string() + ": " + std::strerror(errno) +
                          "; start trainyardd once, which creates it for its user, and stop it");
  }
  if (st.st_uid == 0) return {};
  if (::setgroups(0, nullptr) == 0 && ::setgid(st.st_gid) == 0 && ::setuid(st.st_uid) == 0) {
    return {};
  }
  return make_error(ErrorCode::kPermissionDenied, "STATE_DIR_NOT_WRITABLE",
                    "state_dir: cannot become the owner of " + state_dir.string() + ": " +
                        std::strerror(errno) + "; run this as the daemon's user");
}

/// Creates the token, or gives the existing one a new text.
Result<Token> make_token(PeopleStore& people, const std::string& name, const std::string& digest) {
  std::string page_token;
  do {
    ASSIGN_OR_RETURN(const NamedPage<Token> page, people.list_tokens(name, 0, page_token));
    const auto known = std::ranges::find(page.entries, kTokenName, &Token::name);
    if (known != page.entries.end()) return people.rotate_token(known->id, digest, 0, kValidUs);
    page_token = page.next_page_token;
  } while (!page_token.empty());
  NewToken asked;
  asked.person = name;
  asked.name = kTokenName;
  asked.digest = digest;
  asked.valid_us = kValidUs;
  return people.create_token(std::move(asked));
}

}  // namespace

Result<InitialAdmin> init_admin(const Config& config, const std::string& name) {
  if (!is_person_name(name)) {
    return make_error(
        ErrorCode::kInvalidArgument, "NAME_MALFORMED",
        "--init-admin: " + quoted_value(name) + " is malformed, expected " + person_name_rule());
  }
  if (Status s = become_owner_of(config.state_dir); !s.ok()) return s.error();
  StoreOptions options;
  options.state_dir = config.state_dir;
  Result<std::unique_ptr<Store>> store = Store::open(std::move(options));
  if (!store.ok()) {
    Error error = std::move(store).error();
    if (error.reason != "STATE_DIR_LOCKED") return error;
    return make_error(ErrorCode::kFailedPrecondition, "DAEMON_RUNS",
                      "--init-admin: the daemon runs (pid " + error.metadata["pid"] +
                          "); stop it first, or, as root or as its user, use 'trainyard user set " +
                          name + " --role admin' on its socket, which needs no stop");
  }
  PeopleStore& people = (*store)->people();
  if (Result<Person> person = people.put_person({name, v1::ADMIN}); !person.ok()) {
    return std::move(person).error();
  }
  InitialAdmin out;
  out.name = name;
  out.token = random_token_text();
  ASSIGN_OR_RETURN(const Token token, make_token(people, name, sha256_hex(out.token)));
  out.expire_time_us = token.expire_time_us;
  return out;
}

}  // namespace trainyard::server
