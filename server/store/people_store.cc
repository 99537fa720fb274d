#include "server/store/people_store.h"

#include <algorithm>
#include <utility>

#include "server/store/page_token.h"
#include "server/store/people_rows.h"
#include "server/store/store_core.h"
#include "src/base/text.h"

namespace trainyard::server {
namespace {

/// Returns one page: `read(db, cursor, count_max)` returns entries after the cursor, and
/// `cursor_of(entry)` the position of one.
template <typename T, typename Read, typename CursorOf>
Result<NamedPage<T>> list_page(StoreCore& core, const std::string& signed_query, int32_t page_size,
                               const std::string& page_token, const Read& read,
                               const CursorOf& cursor_of) {
  ASSIGN_OR_RETURN(const int64_t count_max, page_size_of(page_size));
  std::string after;
  if (!page_token.empty()) {
    ASSIGN_OR_RETURN(after, read_named_page_token(core.page_token_key, signed_query, page_token));
  }
  return core.read<NamedPage<T>>([&](Connection& db) -> Result<NamedPage<T>> {
    NamedPage<T> page;
    page.entries = read(db, after, count_max + 1);
    if (std::ssize(page.entries) > count_max) {
      page.entries.pop_back();
      page.next_page_token =
          make_named_page_token(core.page_token_key, signed_query, cursor_of(page.entries.back()));
    }
    return page;
  });
}

}  // namespace

Error project_not_found(std::string_view id) {
  return make_error(ErrorCode::kNotFound, "PROJECT_NOT_FOUND",
                    "there is no project " + quoted_value(id) +
                        ", or you are not a member of it; 'trainyard project list' shows yours");
}

Error token_not_found(std::string_view id) {
  return make_error(ErrorCode::kNotFound, "TOKEN_NOT_FOUND",
                    "there is no token " + quoted_value(id));
}

Result<PeopleRows> PeopleStore::read_all() const {
  return core_.read<PeopleRows>(
      [](Connection& db) -> Result<PeopleRows> { return read_people_rows(db); });
}

Result<Person> PeopleStore::put_person(NewPerson asked) {
  return core_.change_and_wait<Person>([asked = std::move(asked)](WriteContext& context) {
    return server::put_person(context, asked);
  });
}

Status PeopleStore::remove_person(const std::string& name, const std::string& give_to,
                                  bool may_leave_no_admin) {
  return core_.change_and_wait<void>(
      [=](WriteContext& context) {
        return server::remove_person(context, name, give_to, may_leave_no_admin);
      },
      Urgency::kEssential);
}

Result<NamedPage<Person>> PeopleStore::list_people(int32_t page_size,
                                                   const std::string& page_token) const {
  return list_page<Person>(
      core_, "people", page_size, page_token,
      [](Connection& db, const std::string& after, int64_t count_max) {
        return read_people(db, after, count_max);
      },
      [](const Person& person) { return person.name; });
}

Result<Project> PeopleStore::create_project(const std::string& id) {
  return core_.change_and_wait<Project>(
      [id](WriteContext& context) { return server::create_project(context, id); });
}

Result<Project> PeopleStore::set_devices(const std::string& id, std::vector<std::string> devices) {
  return core_.change_and_wait<Project>(
      [id, devices = std::move(devices)](WriteContext& context) {
        return set_project_devices(context, id, devices);
      },
      Urgency::kEssential);
}

Status PeopleStore::remove_project(const std::string& id) {
  return core_.change_and_wait<void>(
      [id](WriteContext& context) { return server::remove_project(context, id); },
      Urgency::kEssential);
}

Result<NamedPage<Project>> PeopleStore::list_projects(const std::vector<std::string>& ids,
                                                      int32_t page_size,
                                                      const std::string& page_token) const {
  return list_page<Project>(
      core_, "projects", page_size, page_token,
      [&](Connection& db, const std::string& after, int64_t count_max) {
        std::vector<Project> projects;
        for (auto id = std::ranges::upper_bound(ids, after);
             id != ids.end() && std::ssize(projects) < count_max; ++id) {
          if (std::optional<Project> project = find_project_row(db, *id)) {
            projects.push_back(std::move(*project));
          }
        }
        return projects;
      },
      [](const Project& project) { return project.id; });
}

Status PeopleStore::set_member(const Membership& member) {
  // To take a role away ends something, so it works on a full disk too.
  return core_.change_and_wait<void>(
      [member](WriteContext& context) { return server::set_member(context, member); },
      Urgency::kEssential);
}

Result<NamedPage<Membership>> PeopleStore::list_members(const std::string& project,
                                                        int32_t page_size,
                                                        const std::string& page_token) const {
  return list_page<Membership>(
      core_, "members " + project, page_size, page_token,
      [&](Connection& db, const std::string& after, int64_t count_max) {
        return read_members(db, project, after, count_max);
      },
      [](const Membership& member) { return member.person; });
}

Result<Token> PeopleStore::create_token(NewToken asked) {
  return core_.change_and_wait<Token>([asked = std::move(asked)](WriteContext& context) {
    return server::create_token(context, asked);
  });
}

Result<Token> PeopleStore::rotate_token(const std::string& id, const std::string& digest,
                                        int64_t overlap_us, int64_t valid_us) {
  return core_.change_and_wait<Token>(
      [=](WriteContext& context) {
        return server::rotate_token(context, id, digest, overlap_us, valid_us);
      },
      Urgency::kEssential);
}

Status PeopleStore::revoke_token(const std::string& id) {
  return core_.change_and_wait<void>(
      [id](WriteContext& context) { return server::revoke_token(context, id); },
      Urgency::kEssential);
}

Result<Token> PeopleStore::find_token(const std::string& id) const {
  return core_.read<Token>([&](Connection& db) -> Result<Token> {
    std::optional<Token> token = find_token_row(db, id);
    if (!token) return token_not_found(id);
    return std::move(*token);
  });
}

Result<NamedPage<Token>> PeopleStore::list_tokens(const std::string& person, int32_t page_size,
                                                  const std::string& page_token) const {
  return list_page<Token>(
      core_, "tokens " + person, page_size, page_token,
      [&](Connection& db, const std::string& after, int64_t count_max) {
        const size_t slash = std::min(after.find('/'), after.size());
        return read_tokens(db, person, after.substr(0, slash),
                           after.substr(std::min(slash + 1, after.size())), count_max);
      },
      [](const Token& token) { return token.person + "/" + token.name; });
}

Result<Share> PeopleStore::share(Share asked) {
  return core_.change_and_wait<Share>(
      [asked = std::move(asked)](WriteContext& context) { return put_share(context, asked); });
}

Status PeopleStore::unshare(const Share& asked) {
  return core_.change_and_wait<void>(
      [asked](WriteContext& context) { return remove_share(context, asked); }, Urgency::kEssential);
}

void PeopleStore::note_call(const std::string& person, bool host_user,
                            const std::string& token_id) {
  core_.change<void>(
      [=](WriteContext& context) {
        return server::note_call(context, person, host_user, token_id);
      },
      [](const Result<void>&) {},  // a time that is not stored is stored a minute later
      Urgency::kPatient);
}

}  // namespace trainyard::server
