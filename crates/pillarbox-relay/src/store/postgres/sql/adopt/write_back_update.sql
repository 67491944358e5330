update {adopted} t
    set {assignments}
    from {settled} n
    where t.{id} = {id_of_event}
      and ({current}) is distinct from ({wanted});
