"""The Redis coordinator's operations: each is one Lua script, run by the server in one step and by its own clock.

The rules are those of ``books.Books``. The first argument of each is the epoch that the client knows; if it is not
that of ``meta``, nothing is done. All keys begin with ``KEYS[1]``, which holds a hash tag, so that a cluster keeps them
on one node. Times are in milliseconds. ::

    tickets    hash    id -> JSON            deadlines  zset   id by expiry
    requests   hash    id -> JSON            patience   zset   id by when its waiter counts as dead
    queue:KIND zset    id by number          kinds      set    kinds with a queue
    shared     hash    kind -> tickets and idle shares, '*' for all kinds;  granted: tickets alone
    idle:HOLDER hash   kind -> shares        holders    zset   holder by expiry;  clients: holder -> who to wake
    retiring   set     tickets under which idle instances are stopped
    meta       hash    server, epoch and when it began, limits, quiet (nothing is granted before), fence, number
"""

from __future__ import annotations

from agentfly_core.resources.redis_operations import SCRIPTS

PRELUDE = """
local P = KEYS[1]
local epoch = table.remove(ARGV, 1)
if epoch ~= '' and epoch ~= redis.call('HGET', P .. 'meta', 'epoch') then
    return redis.error_reply('FORGOTTEN what was counted in epoch ' .. epoch)
end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local function int(n) return string.format('%d', n) end
local function hget(key, field) return tonumber(redis.call('HGET', P .. key, field) or nil) or 0 end
local function hadd(key, field, n)
    if redis.call('HINCRBY', P .. key, field, int(n)) == 0 then redis.call('HDEL', P .. key, field) end
end
local function share(kind, n) hadd('shared', kind, n) hadd('shared', '*', n) end
local function change_idle(holder, kind, n) hadd('idle:' .. holder, kind, n) share(kind, n) end
local function idle_of(holder)
    local flat, found = redis.call('HGETALL', P .. 'idle:' .. holder), {}
    for i = 1, #flat, 2 do found[flat[i]] = tonumber(flat[i + 1]) end
    return found
end
local function wake(client, message) redis.call('PUBLISH', P .. 'wake:' .. client, cjson.encode(message)) end

local function keep(ticket, expiry)
    redis.call('HSET', P .. 'tickets', ticket.id, cjson.encode(ticket))
    redis.call('ZADD', P .. 'deadlines', int(expiry), ticket.id)
end
local function add(ticket, expiry)
    keep(ticket, expiry)
    hadd('granted', ticket.kind, ticket.amount)
    share(ticket.kind, ticket.amount)
end
local function find(id)
    local raw = redis.call('HGET', P .. 'tickets', id)
    return raw and cjson.decode(raw) or nil
end
local function shown(ticket)
    ticket.expires = tonumber(redis.call('ZSCORE', P .. 'deadlines', ticket.id))
    return cjson.encode(ticket)
end
local function drop(id, idle)
    local ticket = find(id)
    if not ticket then return nil end
    redis.call('HDEL', P .. 'tickets', id)
    redis.call('ZREM', P .. 'deadlines', id)
    redis.call('SREM', P .. 'retiring', id)
    hadd('granted', ticket.kind, -ticket.amount)
    share(ticket.kind, -ticket.amount)
    if idle then change_idle(ticket.holder, ticket.kind, ticket.amount) end
    return ticket
end
local function dequeue(id)
    local raw = redis.call('HGET', P .. 'requests', id)
    if not raw then return false end
    redis.call('HDEL', P .. 'requests', id)
    redis.call('ZREM', P .. 'patience', id)
    redis.call('ZREM', P .. 'queue:' .. cjson.decode(raw).kind, id)
    return true
end
local function forget(holder)
    local had = false
    for kind, units in pairs(idle_of(holder)) do
        change_idle(holder, kind, -units)
        had = true
    end
    redis.call('ZREM', P .. 'holders', holder)
    redis.call('HDEL', P .. 'clients', holder)
    return had
end
local function expire()
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', P .. 'deadlines', '-inf', int(now))) do drop(id) end
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', P .. 'patience', '-inf', int(now))) do dequeue(id) end
    for _, holder in ipairs(redis.call('ZRANGEBYSCORE', P .. 'holders', '-inf', int(now))) do
        if forget(holder) then redis.call('SET', P .. 'lapsed:' .. holder, '1', 'EX', '86400') end
    end
end
local limits = cjson.decode(redis.call('HGET', P .. 'meta', 'limits') or '{}')

-- What granting a request would use up of its holder's idle shares; or nil, the pool that is short, and by how much.
local function claims(request)
    local own, claimed, sum = {}, {}, 0
    if request.holder ~= '' then own = idle_of(request.holder) end
    local function claim(kind, n)
        n = math.min(n, (own[kind] or 0) - (claimed[kind] or 0))
        if n <= 0 then return 0 end
        claimed[kind] = (claimed[kind] or 0) + n
        sum = sum + n
        return n
    end
    if request.reuse then claim(request.kind, request.amount) end
    for _, pool in ipairs({request.kind, '*'}) do
        if limits[pool] then
            local missing = hget('shared', pool) + request.amount - sum - limits[pool]
            missing = missing - claim(request.kind, missing)
            if pool == '*' then
                local others = {}
                for kind in pairs(own) do others[#others + 1] = kind end
                table.sort(others)
                for _, kind in ipairs(others) do missing = missing - claim(kind, missing) end
            end
            if missing > 0 then return nil, pool, missing end
        end
    end
    return claimed
end
local function issue(request, claimed)
    dequeue(request.id)
    for kind, units in pairs(claimed) do change_idle(request.holder, kind, -units) end
    local ticket = {
        id = request.id, kind = request.kind, owner = request.owner, amount = request.amount, holder = request.holder,
        fence = redis.call('HINCRBY', P .. 'meta', 'fence', '1'), since = now, claimed = claimed, ttl = request.ttl,
    }
    add(ticket, now + request.ttl)
    return ticket
end
local function heads()
    local found = {}
    for _, kind in ipairs(redis.call('SMEMBERS', P .. 'kinds')) do
        local first = redis.call('ZRANGE', P .. 'queue:' .. kind, 0, 0, 'WITHSCORES')
        if #first == 0 then
            redis.call('SREM', P .. 'kinds', kind)
        else
            found[#found + 1] = {number = tonumber(first[2]), id = first[1]}
        end
    end
    table.sort(found, function(a, b) return a.number < b.number end)
    for i, head in ipairs(found) do found[i] = cjson.decode(redis.call('HGET', P .. 'requests', head.id)) end
    return found
end
local function quiet() return now < hget('meta', 'quiet') end
local function recalled()
    local wanted = {}
    for _, request in ipairs(heads()) do
        local _, pool, missing = claims(request)
        if missing then
            for _, id in ipairs(redis.call('SMEMBERS', P .. 'retiring')) do
                local ticket = find(id)
                if pool == '*' or ticket.kind == pool then missing = missing - ticket.amount end
            end
            for _, holder in ipairs(redis.call('ZRANGE', P .. 'holders', 0, -1)) do
                for kind, units in pairs(holder ~= request.holder and idle_of(holder) or {}) do
                    local taken = wanted[holder] or {}
                    local more = math.min(missing, units - (taken[kind] or 0))
                    if more > 0 and (pool == '*' or kind == pool) then
                        taken[kind] = (taken[kind] or 0) + more
                        wanted[holder] = taken
                        missing = missing - more
                    end
                end
            end
            if pool == '*' then break end
        end
    end
    return wanted
end
local function advance()
    if quiet() then return end
    local again, waits = true, false
    while again do
        again, waits = false, false
        for _, request in ipairs(heads()) do
            local claimed, pool = claims(request)
            if claimed then
                wake(request.client, {ticket = shown(issue(request, claimed))})
                again = true
                break
            end
            waits = true
            if pool == '*' then break end
        end
    end
    if waits and redis.call('ZCARD', P .. 'holders') > 0 then
        for holder in pairs(recalled()) do
            local client = redis.call('HGET', P .. 'clients', holder)
            if client then wake(client, {recall = holder}) end
        end
    end
end
"""
"""What all scripts share: expiry, the rules of granting, waking who waits."""


def scripts() -> dict[str, str]:
    """Name -> whole text of each operation."""
    return {name: PRELUDE + body for name, body in SCRIPTS.items()}
