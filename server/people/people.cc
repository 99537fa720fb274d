#include "server/people/people.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <ctime>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "server/store/store.h"
#include "src/base/sha256.h"
#include "src/base/text.h"
#include "src/base/token_text.h"

namespace trainyard::server {
namespace {

constexpr int64_t kNotePauseUs = 60'000'000;
constexpr size_t kNotedMax = 100'000;
constexpr std::string_view kFilePrefix = "token_file:";

ProjectRole role_of(v1::ProjectRole role) { return static_cast<ProjectRole>(role); }

Error credentials_error(const char* reason, std::string message) {
  return make_error(ErrorCode::kUnauthenticated, reason, std::move(message));
}

Error acting_denied(std::string_view person) {
  return make_error(
      ErrorCode::kPermissionDenied, "ACTING_FOR_DENIED",
      "trainyard-acting-for: these credentials may not act for " + quoted_value(person));
}

std::string time_text(int64_t time_us) {
  const auto seconds = static_cast<std::time_t>(time_us / 1'000'000);
  std::tm utc{};
  char text[32];
  ::gmtime_r(&seconds, &utc);
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &utc)};
}

}  // namespace

struct People::View {
  struct Role {
    ServerRole server_role = ServerRole::kUser;
    bool service = false;
    bool host_user = false;
    std::map<std::string, ProjectRole, std::less<>> projects;  // with kNone in "default" only
  };
  struct ByDigest {
    const Token* token = nullptr;
    bool old = false;  // the text from before the last rotation
  };
  // Ordered by project, collection, id, then the other project.
  using ShareKey = std::tuple<std::string, std::string, std::string, std::string>;

  explicit View(PeopleRows stored) : rows(std::move(stored)) {
    for (const Person& p : rows.people) {
      people[p.name] = {static_cast<ServerRole>(p.server_role), p.service, p.host_user, {}};
    }
    for (const Membership& m : rows.members) {
      people[m.person].projects[m.project] = role_of(m.role);
    }
    for (const Project& p : rows.projects) projects[p.id] = &p;
    for (const Token& t : rows.tokens) {
      by_id[t.id] = &t;
      by_digest[t.digest] = {&t, false};
      if (!t.old_digest.empty()) by_digest[t.old_digest] = {&t, true};
    }
    revoked.insert(rows.revoked_digests.begin(), rows.revoked_digests.end());
    for (const Share& s : rows.shares) {
      shares.emplace(s.project, s.collection, s.id, s.with_project);
    }
  }
  View(const View&) = delete;

  const Role* find(std::string_view person) const {
    const auto it = people.find(person);
    return it == people.end() ? nullptr : &it->second;
  }
  /// Calls `visit` with each project with which exactly this ID is shared, until it returns true.
  template <typename Visit>
  bool any_share(std::string_view project, std::string_view collection, std::string_view id,
                 const Visit& visit) const {
    const ShareKey first{project, collection, id, ""};
    for (auto it = shares.lower_bound(first); it != shares.end(); ++it) {
      const auto& [p, c, i, with_project] = *it;
      if (p != project || c != collection || i != id) return false;
      if (visit(with_project)) return true;
    }
    return false;
  }
  /// The same for the ID and, if it has a version, for the ID without it.
  template <typename Visit>
  bool any_share_of(std::string_view project, std::string_view collection, std::string_view id,
                    const Visit& visit) const {
    if (any_share(project, collection, id, visit)) return true;
    const size_t at = id.find('@');
    return at != std::string_view::npos && any_share(project, collection, id.substr(0, at), visit);
  }

  const PeopleRows rows;
  std::map<std::string, Role, std::less<>> people;
  std::map<std::string, const Project*, std::less<>> projects;
  std::unordered_map<std::string, const Token*> by_id;
  std::unordered_map<std::string, ByDigest> by_digest;
  std::unordered_set<std::string> revoked;
  std::set<ShareKey> shares;
};

struct People::FileTokens {
  struct Line {
    Tokens::Line line;
    std::string id;  // "token_file:3"
  };
  std::unordered_map<std::string, Line> by_digest;
  std::set<std::string, std::less<>> people;  // the names in the file
  int64_t newest = 0;                         // number of the newest ID, which is never reused
};

People::People(Store& store, const Clock& clock, ProjectRole socket_role)
    : store_(store),
      clock_(clock),
      socket_role_(socket_role),
      view_(std::make_shared<const View>(PeopleRows())),
      file_tokens_(std::make_shared<const FileTokens>()) {}
People::~People() = default;

std::shared_ptr<const People::View> People::view() const {
  const MutexLock lock(mu_);
  return view_;
}

std::shared_ptr<const People::FileTokens> People::file_tokens() const {
  const MutexLock lock(mu_);
  return file_tokens_;
}

void People::observe(std::function<void()> changed) { observers_.push_back(std::move(changed)); }

void People::notify() {
  for (const std::function<void()>& changed : observers_) changed();
}

Status People::reload() {
  {
    const MutexLock only(reload_mu_);
    Result<PeopleRows> rows = store_.people().read_all();
    if (!rows.ok()) {
      stale_ = true;
      spdlog::error("event=people_not_read reason={}", rows.error().reason);
      return std::move(rows).error();
    }
    stale_ = false;
    auto next = std::make_shared<const View>(std::move(*rows));
    const MutexLock lock(mu_);
    view_.swap(next);
  }
  notify();
  return {};
}

Status People::refresh() { return stale_ ? reload() : Status(); }

void People::set_file_tokens(const Tokens& tokens) {
  {
    const MutexLock only(reload_mu_);
    const std::shared_ptr<const FileTokens> before = file_tokens();
    auto next = std::make_shared<FileTokens>();
    next->newest = before->newest;
    for (const Tokens::Line& line : tokens.lines()) {
      // A token that stays keeps its ID, and with it its streams.
      const auto known = before->by_digest.find(line.digest);
      const bool same = known != before->by_digest.end() &&
                        known->second.line.person == line.person &&
                        known->second.line.named == line.named;
      std::string id =
          same ? known->second.id : std::string(kFilePrefix) + std::to_string(++next->newest);
      next->by_digest.emplace(line.digest, FileTokens::Line{line, std::move(id)});
      if (line.named) next->people.insert(line.person);
    }
    const MutexLock lock(mu_);
    file_tokens_ = std::move(next);
  }
  notify();
}

Result<Principal> People::find_by_token(std::string_view text, std::string_view acting_for) const {
  const std::string digest = sha256_hex(text);
  // An attacker cannot choose digests, so the time of these look-ups tells nothing about tokens.
  if (const auto file = file_tokens(); !file->by_digest.empty()) {
    if (const auto it = file->by_digest.find(digest); it != file->by_digest.end()) {
      if (!acting_for.empty()) return acting_denied(acting_for);
      Principal caller;
      caller.person = it->second.line.person;
      caller.token_id = it->second.id;
      caller.owns_daemon = !it->second.line.named;
      return caller;
    }
  }
  const auto now = view();
  const auto it = now->by_digest.find(digest);
  if (it == now->by_digest.end()) {
    if (now->revoked.contains(digest)) {
      return credentials_error(
          "CREDENTIALS_REVOKED",
          "the token was revoked or replaced by another text; use the new one, "
          "or ask an admin for one");
    }
    const bool mistyped = text.starts_with(kTokenPrefix) && !is_token_text(text);
    return credentials_error("CREDENTIALS_INVALID",
                             mistyped ? "the token is mistyped or cut: its checksum is wrong"
                                      : "the token is not valid on this server");
  }
  const Token& token = *it->second.token;
  const int64_t now_us = clock_.wall_us();
  if (it->second.old && now_us >= token.old_end_us) {
    return credentials_error(
        "CREDENTIALS_REVOKED",
        "the token " + token.id + " has another text since it was rotated; use the new one");
  }
  if (token.expire_time_us != 0 && now_us >= token.expire_time_us) {
    return credentials_error("CREDENTIALS_EXPIRED", "the token " + token.id + " expired at " +
                                                        time_text(token.expire_time_us) +
                                                        "; rotate it or create another one");
  }
  Principal caller;
  caller.person = token.person;
  caller.token_id = token.id;
  caller.token_rotation = token.rotations - (it->second.old ? 1 : 0);
  if (acting_for.empty()) return caller;
  return act_for(*now, std::move(caller), acting_for);
}

Result<Principal> People::act_for(const View& view, Principal service,
                                  std::string_view person) const {
  const auto token = view.by_id.find(service.token_id);
  if (token == view.by_id.end() || !knows(person)) return acting_denied(person);
  const std::vector<std::string>& allowed = token->second->may_act_for;
  const View::Role* role = view.find(person);
  if (role != nullptr && role->service) return acting_denied(person);
  const bool named = std::ranges::find(allowed, person) != allowed.end();
  const bool plain = role == nullptr || role->server_role == ServerRole::kUser;
  const bool all = plain && std::ranges::find(allowed, "*") != allowed.end();
  if (!named && !all) return acting_denied(person);
  service.service = std::exchange(service.person, std::string(person));
  return service;
}

Result<Principal> People::find_by_user(const std::string& name, bool owns_daemon,
                                       std::string_view acting_for) const {
  if (!acting_for.empty()) return acting_denied(acting_for);
  const auto now = view();
  if (const View::Role* role = now->find(name); role != nullptr && role->service && !owns_daemon) {
    return credentials_error(
        "CREDENTIALS_INVALID",
        quoted_value(name) +
            " is the name of a service on this server; a user of the host with "
            "that name cannot call on the socket");
  }
  Principal caller;
  caller.person = name;
  caller.local = true;
  caller.owns_daemon = owns_daemon;
  return caller;
}

bool People::is_valid(const Principal& principal) const {
  if (principal.token_id.empty()) return true;
  if (principal.token_id.starts_with(kFilePrefix)) {
    const auto file = file_tokens();
    return std::ranges::any_of(
        file->by_digest, [&](const auto& entry) { return entry.second.id == principal.token_id; });
  }
  const auto now = view();
  const auto it = now->by_id.find(principal.token_id);
  if (it == now->by_id.end()) return false;
  const Token& token = *it->second;
  const int64_t now_us = clock_.wall_us();
  if (token.expire_time_us != 0 && now_us >= token.expire_time_us) return false;
  const bool current = principal.token_rotation == token.rotations;
  const bool overlaps =
      principal.token_rotation == token.rotations - 1 && now_us < token.old_end_us;
  if (!current && !overlaps) return false;
  if (principal.service.empty()) return true;
  Principal service = principal;
  service.person = std::exchange(service.service, "");
  return act_for(*now, std::move(service), principal.person).ok();
}

void People::note_call(const Principal& principal) {
  const int64_t now_us = clock_.steady_us();
  const std::string key = principal.person + "\n" + principal.token_id;
  {
    const MutexLock lock(mu_);
    const auto called = called_.try_emplace(principal.person, principal.local).first;
    called->second |= principal.local;
    if (noted_us_.size() >= kNotedMax) noted_us_.clear();
    const auto [noted, is_new] = noted_us_.try_emplace(key, now_us);
    if (!is_new && now_us < noted->second + kNotePauseUs) return;
    noted->second = now_us;
  }
  const bool of_file = principal.token_id.starts_with(kFilePrefix);
  if (principal.service.empty()) {
    store_.people().note_call(principal.person, principal.local, of_file ? "" : principal.token_id);
  } else {
    store_.people().note_call(principal.person, false, "");
    store_.people().note_call(principal.service, false, principal.token_id);
  }
}

bool People::knows(std::string_view person) const {
  if (view()->find(person) != nullptr || file_tokens()->people.contains(person)) return true;
  const MutexLock lock(mu_);
  return called_.contains(person);
}

int64_t People::expire_time_us(const Principal& principal) const {
  const auto now = view();
  const auto it = now->by_id.find(principal.token_id);
  return it == now->by_id.end() ? 0 : it->second->expire_time_us;
}

std::string People::token_name(const Principal& principal) const {
  if (principal.token_id.starts_with(kFilePrefix)) return principal.token_id;
  const auto now = view();
  const auto it = now->by_id.find(principal.token_id);
  return it == now->by_id.end() ? std::string() : it->second->name;
}

ServerRole People::server_role(const Principal& principal) const {
  if (principal.owns_daemon) return ServerRole::kAdmin;
  const auto now = view();
  const View::Role* role = now->find(principal.person);
  return role == nullptr ? ServerRole::kUser : role->server_role;
}

bool People::is_host_user(const View& view, const Principal& principal) const {
  if (principal.local) return true;
  const View::Role* role = view.find(principal.person);
  if (role != nullptr && (role->host_user || role->service)) return role->host_user;
  if (file_tokens()->people.contains(principal.person)) return true;
  const MutexLock lock(mu_);
  const auto called = called_.find(principal.person);
  return called != called_.end() && called->second;
}

ProjectRole People::role(const Principal& principal, std::string_view project) const {
  const auto now = view();
  if (!now->projects.contains(project)) return ProjectRole::kNone;
  if (server_role(principal) == ServerRole::kAdmin) return ProjectRole::kMaintainer;
  if (const View::Role* role = now->find(principal.person); role != nullptr) {
    if (const auto it = role->projects.find(project); it != role->projects.end()) {
      return it->second;
    }
  }
  if (project != kDefaultProject || !is_host_user(*now, principal)) return ProjectRole::kNone;
  return socket_role_;
}

std::vector<std::string> People::projects(const Principal& principal) const {
  std::vector<std::string> out;
  for (auto& [project, role] : memberships(principal)) out.push_back(project);
  return out;
}

std::vector<std::pair<std::string, ProjectRole>> People::memberships(
    const Principal& principal) const {
  std::vector<std::pair<std::string, ProjectRole>> out;
  const auto now = view();
  const auto add = [&](const std::string& project) {
    const ProjectRole role = this->role(principal, project);
    if (role != ProjectRole::kNone) out.emplace_back(project, role);
  };
  if (server_role(principal) == ServerRole::kAdmin) {
    for (const auto& [project, row] : now->projects) add(project);
    return out;
  }
  std::set<std::string> asked{kDefaultProject};
  if (const View::Role* role = now->find(principal.person); role != nullptr) {
    for (const auto& [project, in_it] : role->projects) asked.insert(project);
  }
  for (const std::string& project : asked) add(project);
  return out;
}

bool People::is_shared_with(const Principal& principal, std::string_view project,
                            std::string_view collection, std::string_view id) const {
  return view()->any_share_of(project, collection, id, [&](const std::string& with_project) {
    return role(principal, with_project) >= ProjectRole::kViewer;
  });
}

bool People::is_shared(std::string_view project, std::string_view collection, std::string_view id,
                       std::string_view with_project) const {
  return view()->any_share_of(project, collection, id,
                              [&](const std::string& other) { return other == with_project; });
}

bool People::has_shares(std::string_view project, std::string_view collection,
                        std::string_view id) const {
  const std::string_view stem = id.substr(0, id.find('@'));
  const auto now = view();
  const View::ShareKey first{project, collection, stem, ""};
  for (auto it = now->shares.lower_bound(first); it != now->shares.end(); ++it) {
    const std::string& shared = std::get<2>(*it);
    if (std::get<0>(*it) != project || std::get<1>(*it) != collection ||
        !shared.starts_with(stem)) {
      return false;
    }
    if (shared == stem || shared[stem.size()] == '@') return true;
  }
  return false;
}

std::vector<Share> People::shares_of(std::string_view project) const {
  std::vector<Share> out;
  for (const Share& share : view()->rows.shares) {
    if (share.project == project || share.with_project == project) out.push_back(share);
  }
  return out;
}

std::vector<std::string> People::devices(std::string_view project) const {
  const auto now = view();
  const auto it = now->projects.find(project);
  return it == now->projects.end() ? std::vector<std::string>() : it->second->devices;
}

std::map<std::string, std::vector<std::string>> People::project_devices() const {
  std::map<std::string, std::vector<std::string>> out;
  for (const Project& project : view()->rows.projects) {
    if (!project.devices.empty()) out[project.id] = project.devices;
  }
  return out;
}

}  // namespace trainyard::server
