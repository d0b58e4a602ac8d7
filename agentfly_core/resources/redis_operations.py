"""What the Redis coordinator can ask of the server, one script each; see ``redis_scripts`` for what they share."""

from __future__ import annotations

SCRIPTS: dict[str, str] = {
    # server, its age (-1: not known), lease time, limits ('' goes by those of others), an epoch to begin if what was
    # counted may be lost, the epoch that the client knew before: -> limits in force, epoch, milliseconds of quiet.
    "hello": """
        expire()
        local server, age, lease, wanted, knew = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[6]
        local known, epoch = unpack(redis.call('HMGET', P .. 'meta', 'server', 'epoch'))
        local until_, restarted = 0, known and known ~= server
        if not known and age >= 0 then until_ = now - age + lease end
        if not known or restarted then
            redis.call('HSET', P .. 'meta', 'server', server, 'epoch', ARGV[5], 'began', int(now))
        end
        if restarted or (knew ~= '' and knew ~= epoch) then until_ = hget('meta', 'began') + lease end
        redis.call('HSET', P .. 'meta', 'quiet', int(math.max(hget('meta', 'quiet'), until_)))
        local used = redis.call('HLEN', P .. 'tickets') + redis.call('HLEN', P .. 'requests')
            + redis.call('ZCARD', P .. 'holders')
        local stored = redis.call('HGET', P .. 'meta', 'limits')
        if wanted ~= '' and (not stored or used == 0) then
            stored = wanted
            redis.call('HSET', P .. 'meta', 'limits', stored)
        end
        return {stored or '{}', redis.call('HGET', P .. 'meta', 'epoch'), math.max(0, hget('meta', 'quiet') - now)}
    """,
    # ticket, milliseconds left: it is held, whatever the server remembers.
    "restore": """
        local ticket = cjson.decode(ARGV[1])
        if not find(ticket.id) then add(ticket, now + tonumber(ARGV[2])) end
        redis.call('HSET', P .. 'meta', 'fence', int(math.max(hget('meta', 'fence'), ticket.fence)))
        return 1
    """,
    # request, patience: -> ticket, or nothing if it waits.
    "acquire": """
        expire()
        local request = cjson.decode(ARGV[1])
        local ticket = find(request.id)
        if ticket then return shown(ticket) end
        if redis.call('HSETNX', P .. 'requests', request.id, ARGV[1]) == 1 then
            local number = redis.call('HINCRBY', P .. 'meta', 'number', '1')
            redis.call('ZADD', P .. 'queue:' .. request.kind, int(number), request.id)
            redis.call('SADD', P .. 'kinds', request.kind)
        end
        redis.call('ZADD', P .. 'patience', int(now + tonumber(ARGV[2])), request.id)
        advance()
        ticket = find(request.id)
        return ticket and shown(ticket) or false
    """,
    # request, whether of its holder's idle shares: -> ticket or nothing.
    "try": """
        expire()
        advance()
        local request = cjson.decode(ARGV[1])
        local ticket = find(request.id)
        if ticket then return shown(ticket) end
        if ARGV[2] == '1' then
            if (idle_of(request.holder)[request.kind] or 0) == 0 then return false end
            redis.call('SADD', P .. 'retiring', request.id)
            return shown(issue(request, {[request.kind] = 1}))
        end
        if quiet() then return false end
        for _, head in ipairs(heads()) do
            if head.kind == request.kind or limits['*'] then return false end
        end
        local claimed = claims(request)
        if not claimed or next(claimed) then return false end
        return shown(issue(request, claimed))
    """,
    # patience, request ids...: they still wait; -> tickets of those that were granted, ids of those that are unknown.
    "look": """
        expire()
        advance()
        local granted, unknown = {}, {}
        for i = 2, #ARGV do
            local ticket = find(ARGV[i])
            if ticket then
                keep(ticket, now + ticket.ttl)
                granted[#granted + 1] = shown(ticket)
            elseif redis.call('HEXISTS', P .. 'requests', ARGV[i]) == 1 then
                redis.call('ZADD', P .. 'patience', int(now + tonumber(ARGV[1])), ARGV[i])
            else
                unknown[#unknown + 1] = ARGV[i]
            end
        end
        return {granted, unknown}
    """,
    # id, ttl: -> ticket, or nothing if it is lost.
    "renew": """
        expire()
        local ticket = find(ARGV[1])
        if ticket then
            ticket.ttl = tonumber(ARGV[2])
            keep(ticket, now + ticket.ttl)
        end
        advance()
        return ticket and shown(ticket) or false
    """,
    # id, whether its share stays with its holder: -> whether it does.
    "release": """
        expire()
        local ticket = find(ARGV[1])
        local idle = ticket and ARGV[2] == '1' and redis.call('ZSCORE', P .. 'holders', ticket.holder)
        drop(ARGV[1], idle)
        advance()
        return idle and 1 or 0
    """,
    # id: nobody waits for it or took it.
    "abandon": """
        expire()
        if not dequeue(ARGV[1]) then
            local ticket = drop(ARGV[1])
            for kind, units in pairs(ticket and ticket.claimed or {}) do change_idle(ticket.holder, kind, units) end
        end
        advance()
        return 1
    """,
    # holder, ttl, client: -> kind -> units to give up, or nothing if the idle shares were lost.
    "attend": """
        expire()
        redis.call('ZADD', P .. 'holders', int(now + tonumber(ARGV[2])), ARGV[1])
        redis.call('HSET', P .. 'clients', ARGV[1], ARGV[3])
        if redis.call('DEL', P .. 'lapsed:' .. ARGV[1]) == 1 then return false end
        advance()
        return cjson.encode(recalled()[ARGV[1]] or {})
    """,
    # holder: it is gone.
    "leave": """
        expire()
        forget(ARGV[1])
        advance()
        return 1
    """,
    # -> everything, for people to read.
    "status": """
        expire()
        advance()
        local tickets, requests, shared = {}, {}, {}
        for _, id in ipairs(redis.call('HKEYS', P .. 'tickets')) do tickets[#tickets + 1] = shown(find(id)) end
        local flat = redis.call('HGETALL', P .. 'shared')
        for i = 1, #flat, 2 do shared[flat[i]] = tonumber(flat[i + 1]) end
        return {
            cjson.encode(limits), cjson.encode(shared), tickets, redis.call('HVALS', P .. 'requests'),
            math.max(0, hget('meta', 'quiet') - now),
        }
    """,
}
"""Name -> body; arguments and results are in the comment before each."""
