delete from {adopted} t
    using {settled} n
    where n.status = 'published' and t.{id} = {id_of_event};
